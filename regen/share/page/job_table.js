// The jobs of a device, one row each, in the order in which they came.

const JOB_COLUMNS = [
  {head: "job"},
  {head: "state"},
  {head: "device time", title: "fraction of the device's time in the last second", number: true},
  {head: "held", title: "bytes that count as its own", number: true},
  {head: "limit", title: "bytes that it may use now", number: true},
  {head: "priority", number: true},
  {head: "weight", number: true},
  {head: "turns", number: true},
  {head: "pauses", title: "how often it gave way because it was asked to", number: true},
  {head: "wait p50", title: "half of its waits for a grant in the last two minutes were shorter", number: true},
  {head: "wait p95", number: true},
  {head: "request p50", title: "as the job says", number: true},
  {head: "request p95", number: true},
];

// Of several things that are true, the one that an operator would act on.
function stateOf(job) {
  if (job.over_limit) return "over its limit";
  if (job.asked_to_give_way) return "giving way";
  return job.memory_state === "settled" ? job.state : job.memory_state;
}

class JobRow {
  constructor(device, job, choose) {
    this.identity = job.identity;
    this.button = button("", () => choose(job.identity), {class: "job", "aria-pressed": "false"});
    this.button.append(jobName(job.name));
    this.state = element("span", {"data-key": "state"});
    const keys = ["fraction", "held_bytes", "limit_bytes", "priority", "weight", "grants", "preemptions", "wait_p50_seconds", "wait_p95_seconds",
      "request_p50_seconds", "request_p95_seconds"];
    this.cells = Object.fromEntries(keys.map((key) => [key, new Cell(key)]));
    const cells = [this.button, this.state, ...keys.map((key) => this.cells[key].node)];
    this.node = element("tr", {"data-job": job.identity},
      ...cells.map((cell, i) => element(i === 0 ? "th" : "td", {class: JOB_COLUMNS[i].number ? "number" : null, scope: i === 0 ? "row" : null}, cell)));
  }

  show(device, job, rates) {
    const {cells} = this;
    const state = stateOf(job);
    if (this.state.textContent !== state) this.state.textContent = state;
    this.node.classList.toggle("holding", job.state === "holding");
    cells.fraction.percent(rates.ofJob(device, job, "used_seconds"));
    cells.held_bytes.bytes(job.held_bytes);
    cells.limit_bytes.bytes(job.limit_bytes);
    cells.priority.count(job.priority);
    cells.weight.show(job.weight, String(job.weight));
    cells.grants.count(job.grants);
    cells.preemptions.count(job.preemptions);
    for (const key of ["wait_p50_seconds", "wait_p95_seconds", "request_p50_seconds", "request_p95_seconds"]) cells[key].seconds(job[key]);
  }
}

class JobTable {
  constructor(choose) {
    this.choose = choose;
    this.rows = new Map();
    this.body = element("tbody");
    const heads = JOB_COLUMNS.map((column) => element("th", {scope: "col", class: column.number ? "number" : null, title: column.title}, column.head));
    const table = element("table", {class: "jobs"}, element("thead", {}, element("tr", {}, ...heads)), this.body);
    this.node = scrolling("Jobs", table);
  }

  show(device, rates, chosen) {
    const present = new Set(device.jobs.map((job) => job.identity));
    for (const [identity, row] of this.rows) {
      if (present.has(identity)) continue;
      row.node.remove();
      this.rows.delete(identity);
    }
    for (const job of device.jobs) {
      if (!this.rows.has(job.identity)) {
        const row = new JobRow(device, job, this.choose);
        this.rows.set(job.identity, row);
        this.body.append(row.node);
      }
      const row = this.rows.get(job.identity);
      row.show(device, job, rates);
      row.button.setAttribute("aria-pressed", String(job.identity === chosen));
    }
  }
}
