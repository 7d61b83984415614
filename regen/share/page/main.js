// Asks for a report each second, and for the history whenever a step has passed, and shows both.

const PAUSE = 1000;  // milliseconds

class LivePage {
  constructor() {
    this.daemon = new DaemonConnection();
    this.rates = new Rates();
    this.history = new DaemonHistory();
    this.sections = new Map();
    this.main = document.getElementById("main");
    this.state = document.getElementById("state");
    this.heardAt = null;
    this.historyAge = -Infinity;
    this.main.replaceChildren();
  }

  async refresh() {
    try {
      this.show(await this.daemon.ask("/status.json"));
      if (this.rates.now.age_seconds - this.historyAge >= this.history.stepSeconds) await this.refreshHistory();
      this.heardAt = Date.now();
      this.say("good", `live, up ${formatAge(this.rates.now.age_seconds)}`);
      document.documentElement.dataset.ready = "yes";
    } catch (error) {
      this.sayGone(error);
    }
  }

  async refreshHistory() {
    const news = this.history.add(await this.daemon.ask(`/history.json?after=${this.history.lastStep}`));
    this.historyAge = (this.history.lastStep + 1) * this.history.stepSeconds;
    if (!news) return;
    for (const section of this.sections.values()) section.showHistory(this.history);
  }

  show(report) {
    this.rates.add(report);
    for (const device of report.devices) {
      if (!this.sections.has(device.name)) {
        const section = new DeviceSection(device.name);
        this.sections.set(device.name, section);
        this.main.append(section.node);
        section.show(device, this.rates);
        section.showHistory(this.history);
      }
      this.sections.get(device.name).show(device, this.rates);
    }
    document.documentElement.dataset.age = String(report.age_seconds);
  }

  say(mood, text) {
    this.state.className = mood;
    if (this.state.textContent !== text) this.state.textContent = text;
    this.main.classList.toggle("stale", mood === "bad");
  }

  sayGone(error) {
    const since = this.heardAt === null ? "" : ` What is shown is ${formatAge((Date.now() - this.heardAt) / 1000)} old.`;
    const what = error instanceof Refused ? error.message : "The daemon has gone, or does not answer; looking again each second.";
    this.say("bad", what + since);
    document.documentElement.dataset.gone = "yes";
  }

  // A page that nobody sees asks for nothing.
  async run() {
    if (!document.hidden) {
      delete document.documentElement.dataset.gone;
      await this.refresh();
    }
    window.setTimeout(() => this.run(), PAUSE);
  }
}

function formatAge(seconds) {
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

followTheme();
new LivePage().run();
