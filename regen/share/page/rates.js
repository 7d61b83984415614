// What two reports in a row say about the time between them. Counts in a report begin with the daemon or the job.

class Rates {
  constructor() {
    this.before = null;
    this.now = null;
  }

  add(report) {
    const again = this.now !== null && this.now.process === report.process;
    if (again && this.now.age_seconds === report.age_seconds) return;  // the same report, once more
    this.before = again ? this.now : null;
    this.now = report;
  }

  seconds() {
    return this.before === null ? null : this.now.age_seconds - this.before.age_seconds;
  }

  deviceBefore(name) {
    return this.before?.devices.find((device) => device.name === name) ?? null;
  }

  // By how much a count of a device grew in a second; null: not known yet.
  ofDevice(device, key) {
    const before = this.deviceBefore(device.name);
    return before === null ? null : (device[key] - before[key]) / this.seconds();
  }

  // The same of a job. One that came meanwhile began with nothing.
  ofJob(device, job, key) {
    const before = this.deviceBefore(device.name);
    if (before === null) return null;
    const same = before.jobs.find((one) => one.identity === job.identity);
    const began = same !== undefined && same[key] <= job[key] ? same[key] : 0;
    return (job[key] - began) / this.seconds();
  }
}
