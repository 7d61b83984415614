// Builds the page from the report in it.

function planPart(report, plan) {
  const view = new View(plan);
  const heading = element("h2", {}, nameText(plan.title));
  return element("article", {class: "plan", "data-plan": plan.index, "aria-label": plan.title},
    heading, summarySection(plan), stepCharts(view), liveTable(view), new ModuleTable(view).node(), curveSection(plan), notesSection(plan));
}

// Plans beside each other have one scale.
function setScales(report) {
  const bytes = Math.max(...report.plans.map((plan) => Math.max(plan.summary.predicted_bytes, plan.summary.budget_bytes ?? 0)));
  const addresses = Math.max(...report.plans.map((plan) => plan.layout.bytes));
  for (const plan of report.plans) {
    plan.scaleBytes = bytes;
    plan.scaleAddresses = addresses;
  }
}

function start() {
  const main = document.getElementById("main");
  followTheme();
  let report;
  try {
    const document_ = JSON.parse(document.getElementById("report").textContent);
    if (document_.format !== "regen-report" || document_.version !== 1) throw new Error("its format is not that of this page");
    report = new Report(document_);
  } catch (error) {
    main.replaceChildren(element("p", {class: "verdict bad"}, `This report cannot be read: ${error.message}`));
    return;
  }
  setScales(report);
  document.getElementById("title").replaceChildren("regen report: ", nameText(report.document.title));
  document.title = `regen report: ${report.document.title}`;
  const plans = element("div", {class: report.plans.length > 1 ? "plans several" : "plans"}, ...report.plans.map((plan) => planPart(report, plan)));
  main.replaceChildren(...(report.plans.length > 1 ? [comparison(report)] : []), plans);
  document.documentElement.dataset.ready = "yes";
}

start();
