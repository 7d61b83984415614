// One device: what is so now, the last hour, its jobs, and those that wait for memory.

class DeviceSection {
  constructor(name) {
    this.name = name;
    this.chosen = null;  // identity of a job
    this.history = null;
    this.holder = element("p", {class: "verdict", "data-key": "holder"});
    this.cells = Object.fromEntries(["used_bytes", "bytes", "utilisation", "turns_per_second", "turns", "jobs", "newcomers", "finished_jobs"].map((key) => [key, new Cell(key)]));
    this.memory = element("meter", {min: 0, max: 1, value: 0, "aria-label": "memory that counts as some job's"});
    this.charts = [
      new HistoryChart("Utilisation", [{name: "utilisation", colour: "line-one", key: "utilisation"}], formatFraction, 1),
      new HistoryChart("Memory", [{name: "held by jobs", colour: "line-one", key: "used_bytes"}], formatBytes),
      new HistoryChart("Turns in a second", [{name: "turns", colour: "line-one", key: "turns_per_second"}], formatRate),
    ];
    this.table = new JobTable((identity) => this.choose(identity));
    this.detail = new JobDetail();
    this.newcomers = element("ul", {class: "newcomers"});
    this.none = element("p", {class: "note"}, "No job is registered here.");
    const {cells} = this;
    this.node = element("section", {"data-device": name, "aria-label": name}, element("h2", {}, jobName(name)), this.holder,
      factList([
        ["held by jobs", cells.used_bytes.node, this.memory], ["memory", cells.bytes.node], ["utilisation", cells.utilisation.node],
        ["turns", cells.turns.node], ["turns in a second", cells.turns_per_second.node], ["jobs", cells.jobs.node],
        ["waiting for memory", cells.newcomers.node], ["have left", cells.finished_jobs.node]]),
      element("div", {class: "charts"}, ...this.charts.map((chart) => chart.node)), this.none, this.table.node, this.newcomers, this.detail.node);
  }

  show(device, rates) {
    const {cells} = this;
    this.device = device;
    this.rates = rates;
    cells.used_bytes.bytes(device.used_bytes);
    cells.bytes.bytes(device.bytes);
    this.memory.max = device.bytes;
    this.memory.value = device.used_bytes;
    cells.utilisation.percent(rates.ofDevice(device, "busy_seconds"));
    cells.turns.count(device.turns);
    cells.turns_per_second.rate(rates.ofDevice(device, "turns"));
    cells.jobs.count(device.jobs.length);
    cells.newcomers.count(device.newcomers.length);
    cells.finished_jobs.count(device.finished_jobs);
    this.showHolder(device);
    this.showJobs();
    this.showNewcomers(device.newcomers);
  }

  showHolder(device) {
    const holder = device.jobs.find((job) => job.state === "holding");
    const more = [device.in_turns ? "jobs take turns with their memory" : null, device.closed ? "closed: a former holder is still in its last quantum" : null,
      holder?.asked_to_give_way ? `asked to give way for ${formatCost(device.asked_to_give_way_seconds, "second")}` : null].filter((text) => text !== null);
    const text = (holder === undefined ? "free" : `held by ${visibleName(holder.name)}`) + more.map((part) => `; ${part}`).join("");
    if (this.holder.textContent !== text) this.holder.textContent = text;
  }

  showJobs() {
    const {device} = this;
    const chosen = device.jobs.find((job) => job.identity === this.chosen) ?? device.jobs[0] ?? null;
    const changed = this.chosen !== (chosen?.identity ?? null);
    this.chosen = chosen?.identity ?? null;
    this.none.hidden = device.jobs.length > 0;
    this.table.node.hidden = device.jobs.length === 0;
    this.table.show(device, this.rates, this.chosen);
    this.detail.showJob(chosen);
    if (changed && this.history) this.showDetail();
  }

  showNewcomers(newcomers) {
    const lines = newcomers.map((job) => element("li", {}, jobName(job.name), ` waits for memory: ${formatBytes(job.memory_bytes)}, at least ${formatBytes(job.least_bytes)}, for ${formatCost(job.waited_seconds, "second")}`));
    this.newcomers.replaceChildren(...lines);
  }

  choose(identity) {
    this.chosen = identity;
    this.showJobs();
    this.showDetail();
  }

  showDetail() {
    const {history} = this;
    this.detail.showHistory(this.chosen === null ? null : history.job(this.name, this.chosen), history.stepSeconds);
  }

  showHistory(history) {
    this.history = history;
    for (const chart of this.charts) chart.show(history.device(this.name), history.stepSeconds);
    this.showDetail();
  }
}
