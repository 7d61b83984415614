// Numbers for people.

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// "1.50 GiB": three significant digits, exact below 1 KiB.
function formatBytes(bytes) {
  if (bytes === null || bytes === undefined) return "unknown";
  let value = Math.abs(bytes);
  let unit = 0;
  while (value >= 999.5 && unit + 1 < BYTE_UNITS.length) {
    value /= 1024;
    unit += 1;
  }
  const sign = bytes < 0 ? "-" : "";
  return `${sign}${unit === 0 ? value : significant(value)} ${BYTE_UNITS[unit]}`;
}

function significant(value) {
  if (value === 0) return "0";
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

const SECOND_UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
const FLOP_UNITS = [[1e15, "Pflop"], [1e12, "Tflop"], [1e9, "Gflop"], [1e6, "Mflop"], [1e3, "kflop"], [1, "flop"]];

// "12.3 ms" or "58.9 Gflop".
function formatCost(cost, unit) {
  if (cost === null || cost === undefined) return "unknown";
  const units = unit === "second" ? SECOND_UNITS : FLOP_UNITS;
  const size = Math.abs(cost);
  if (size === 0) return `0 ${unit === "second" ? "s" : "flop"}`;
  const [factor, name] = units.find(([one]) => size >= one * 0.9995) ?? units[units.length - 1];
  const value = size / factor;
  return `${cost < 0 ? "-" : ""}${value >= 1e6 ? value.toExponential(2) : significant(value)} ${name}`;
}

function formatPercent(fraction) {
  return `${fraction < 0 ? "-" : "+"}${(Math.abs(fraction) * 100).toFixed(1)} %`;
}

function formatCount(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
