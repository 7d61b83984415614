// The last hour as the daemon keeps it, in steps; only new steps are asked for.

const HISTORY_POINTS = 720;
const STEP_SECONDS = 5;  // until the daemon says it

class DaemonHistory {
  constructor() {
    this.lastStep = -1;
    this.stepSeconds = STEP_SECONDS;
    this.devices = new Map();
    this.jobs = new Map();
  }

  static keyOf(device, identity) {
    return JSON.stringify([device, identity]);
  }

  device(name) {
    return this.devices.get(name) ?? null;
  }

  job(device, identity) {
    return this.jobs.get(DaemonHistory.keyOf(device, identity)) ?? null;
  }

  // `answer` holds what came after lastStep. Whether anything has.
  add(answer) {
    const news = answer.last_step !== this.lastStep;
    this.stepSeconds = answer.step_seconds;
    for (const part of answer.devices) this.addPart(this.devices, part.name, part);
    const jobs = new Map();
    for (const part of answer.jobs) {
      const key = DaemonHistory.keyOf(part.device, part.identity);
      this.addPart(this.jobs, key, part);
      jobs.set(key, this.jobs.get(key));
    }
    this.jobs = jobs;  // those that have left are forgotten
    this.lastStep = answer.last_step;
    return news;
  }

  addPart(parts, key, part) {
    const known = parts.get(key);
    const lists = Object.entries(part).filter(([, values]) => Array.isArray(values));
    const follows = known !== undefined && known.next === part.from;
    const made = {next: part.from + (lists[0]?.[1].length ?? 0)};
    for (const [name, values] of lists) made[name] = (follows ? known[name].concat(values) : values).slice(-HISTORY_POINTS);
    parts.set(key, made);
  }
}
