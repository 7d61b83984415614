// Numbers that change in place: a report writes into the elements of the last one, so that nothing moves, and what has
// the keyboard's focus keeps it.

class Cell {
  // key: for programs that read the page.
  constructor(key) {
    this.node = element("data", {"data-key": key});
    this.shown = undefined;
  }

  show(value, text) {
    const exact = value ?? "";
    if (this.shown === text && this.node.value === String(exact)) return;
    this.shown = text;
    this.node.value = exact;
    this.node.textContent = text;
  }

  bytes(value) {
    this.show(value, formatBytes(value));
  }

  seconds(value) {
    this.show(value, value === null ? "–" : formatCost(value, "second"));
  }

  percent(value) {
    this.show(value, value === null ? "–" : formatFraction(value));
  }

  rate(value) {
    this.show(value, value === null ? "–" : formatRate(value));
  }

  count(value) {
    this.show(value, value === null ? "–" : value.toLocaleString("en"));
  }
}

function formatFraction(value) {
  return `${(100 * value).toFixed(1)} %`;
}

function formatRate(value) {
  return `${value >= 100 ? value.toFixed(0) : value.toFixed(1)}/s`;
}

// A name that a job chose: what could not be seen, or would turn what stands beside it, is written as its number.
function jobName(text) {
  return nameText(visibleName(text));
}

function visibleName(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu, (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
}

// Terms and numbers that keep their places.
function factList(facts) {
  return element("dl", {class: "facts"}, ...facts.map(([term, ...nodes]) => element("div", {}, element("dt", {}, term), element("dd", {}, ...nodes))));
}
