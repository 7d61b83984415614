// The last hour of one job of a device: the one that was chosen in the table, else the first.

class JobDetail {
  constructor() {
    this.title = element("h3", {});
    this.charts = [
      new HistoryChart("Device time", [{name: "fraction", colour: "line-one", key: "fraction"}], formatFraction, 1),
      new HistoryChart("Bytes held", [{name: "held", colour: "line-one", key: "held_bytes"}], formatBytes),
      new HistoryChart("Wait for a grant", [{name: "p50", colour: "line-one", key: "wait_p50_seconds"}, {name: "p95", colour: "line-two", key: "wait_p95_seconds"}],
        (value) => formatCost(value, "second")),
      new HistoryChart("Turns and pauses in a second", [{name: "turns", colour: "line-one", key: "turns_per_second"}, {name: "pauses", colour: "line-two", key: "pauses_per_second"}],
        formatRate),
    ];
    this.shown = null;
    this.node = element("div", {class: "detail"}, this.title, element("div", {class: "charts"}, ...this.charts.map((chart) => chart.node)));
    this.node.hidden = true;
  }

  showJob(job) {
    this.node.hidden = job === null;
    if (job === null || this.shown === job.identity) return;
    this.shown = job.identity;
    this.title.replaceChildren("The last hour of ", jobName(job.name));
  }

  showHistory(points, stepSeconds) {
    for (const chart of this.charts) chart.show(points, stepSeconds);
  }
}
