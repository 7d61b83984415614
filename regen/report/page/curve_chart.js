// Time against bytes: what more memory would buy, with this plan on the curve and the bound below.

class CurveChart {
  constructor(plan) {
    this.plan = plan;
    this.report = plan.report;
    this.points = plan.curve.filter((point) => point.cost !== null);
    this.bounds = plan.curve.filter((point) => point.lower_bound !== null && point.lower_bound > 0);
    this.canvas = new Canvas(this.label(), 240, (context, width, height) => this.draw(context, width, height));
    theme.onChange(() => this.canvas.redraw());
  }

  label() {
    const last = this.points.at(-1);
    const {summary} = this.plan;
    return `Time of a step against bytes: ${formatCount(this.points.length, "plan")}, from ${formatBytes(this.points[0]?.bytes)} to ${formatBytes(last?.bytes)}; this plan takes ${formatBytes(summary.peak_bytes)} and ${formatCost(summary.cost, this.report.unit)}.`;
  }

  draw(context, width, height) {
    const {summary} = this.plan;
    const all = [...this.points.map((p) => [p.bytes, p.cost]), ...this.bounds.map((p) => [p.bytes, p.lower_bound]), [summary.peak_bytes, summary.cost]];
    const right = 1.04 * Math.max(...all.map(([bytes]) => bytes), summary.budget_bytes ?? 0);
    const top = 1.08 * Math.max(...all.map(([, cost]) => cost));
    const x = (bytes) => CHART_LEFT + ((width - CHART_LEFT - 8) * bytes) / right;
    const y = (cost) => (height - CHART_FOOT) * (1 - cost / top);
    this.drawAxes(context, width, height, right, top, x, y);
    this.drawSteps(context, this.points.map((p) => [x(p.bytes), y(p.cost)]), "accent", width - 8);
    context.setLineDash([4, 3]);
    this.drawSteps(context, this.bounds.map((p) => [x(p.bytes), y(p.lower_bound)]), "faint", width - 8);
    context.setLineDash([]);
    for (const point of this.points) this.dot(context, x(point.bytes), y(point.cost), 3, "accent");
    this.dot(context, x(summary.peak_bytes), y(summary.cost), 5, "bad");
    outlinedText(context, "this plan", x(summary.peak_bytes) + 8, y(summary.cost) - 6);
    if (summary.budget_bytes === null) return;
    context.fillStyle = theme.colour("bad");
    context.fillRect(x(summary.budget_bytes), 0, 1, height - CHART_FOOT);
    outlinedText(context, "budget", x(summary.budget_bytes) - 4, 12, "right");
  }

  drawAxes(context, width, height, right, top, x, y) {
    context.textAlign = "right";
    for (const tick of ticksUpTo(top)) {
      context.fillStyle = theme.colour("grid");
      context.fillRect(CHART_LEFT, y(tick), width - CHART_LEFT, 1);
      context.fillStyle = theme.colour("faint");
      context.fillText(formatCost(tick, this.report.unit), CHART_LEFT - 6, Math.max(10, y(tick) + 4));
    }
    context.textAlign = "center";
    for (const tick of ticksUpTo(right, 2).slice(1)) context.fillText(formatBytes(tick), x(tick), height - 4);
    context.textAlign = "left";
  }

  // What a plan takes holds for all more bytes until the next one: a staircase.
  drawSteps(context, points, colour, end) {
    if (points.length === 0) return;
    context.strokeStyle = theme.colour(colour);
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(...points[0]);
    points.slice(1).forEach(([px, py], i) => {
      context.lineTo(px, points[i][1]);
      context.lineTo(px, py);
    });
    context.lineTo(end, points.at(-1)[1]);
    context.stroke();
  }

  dot(context, x, y, radius, colour) {
    context.fillStyle = theme.colour(colour);
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fill();
  }

  table() {
    const rows = this.plan.curve.map((point) => [bytesValue(point.bytes, "curve.bytes"), point.cost === null ? "no plan known" : this.report.cost(point.cost, "curve.cost"), point.lower_bound === null ? "" : this.report.cost(point.lower_bound)]);
    return plainTable("Time of a step against bytes", [{head: "bytes", number: true}, {head: "time", number: true}, {head: "proven at least", number: true}], rows);
  }
}

function curveSection(plan) {
  const parts = [moreMemory(plan)];
  if (plan.curve.some((point) => point.cost !== null)) {
    const chart = new CurveChart(plan);
    parts.push(chart.canvas.node, tableInstead("Curve as a table", () => chart.table()));
  } else {
    parts.push(element("p", {class: "note"}, "This report has no curve of time over memory; regen report --curve computes one."));
  }
  return section("What more memory would buy", ...parts);
}

// What can be said without a search: keeping everything is the other end of the curve.
function moreMemory(plan) {
  const {graph} = plan.report;
  const more = graph.keep_all_bytes - plan.summary.peak_bytes;
  const saved = plan.summary.cost - graph.base_cost;
  if (more <= 0 || saved <= 0) return element("p", {}, "Nothing: the step takes no longer than with everything kept.");
  return element("p", {}, "With everything kept the step would take ", bytesValue(graph.keep_all_bytes, "graph.keep_all_bytes"), ", ", bytesValue(more), " more, and ",
    plan.report.cost(graph.base_cost, "graph.base_cost"), ": ", plan.report.cost(saved), ` less (${formatPercent(-saved / plan.summary.cost)}).`);
}
