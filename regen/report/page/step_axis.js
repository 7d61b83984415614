// Where steps lie on the horizontal axis: by time, or one beside the other.

class StepAxis {
  // `times`: when each step begins, ascending, and the end of the last one.
  constructor(times) {
    this.times = times;
    this.count = times.length - 1;
    this.byTime = times[this.count] > 0;
  }

  get end() {
    return this.byTime ? this.times[this.count] : this.count;
  }

  // The place of a step, or of the end.
  at(step) {
    return this.byTime ? this.times[step] : step;
  }

  // The last step that begins at or before a place.
  stepAt(place) {
    if (!this.byTime) return Math.min(this.count - 1, Math.max(0, Math.floor(place)));
    let low = 0;
    let high = this.count - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.times[middle] <= place) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // The first step with some of the axis at or after a place: several may begin at one time.
  firstAt(place) {
    let step = this.stepAt(place);
    while (step > 0 && this.at(step - 1) >= place) step -= 1;
    return step;
  }
}

// When the compute queue reaches each step: a copy starts there, and moves later.
function queueTimes(steps, end) {
  const times = new Float64Array(steps.kind.length + 1);
  let clock = 0;
  for (let i = 0; i < steps.kind.length; i += 1) {
    const kind = steps.kind[i];
    times[i] = kind === "c" ? steps.start[i] : kind === "r" ? steps.end[i] : clock;
    if (kind === "c" || kind === "r") clock = steps.end[i];
  }
  times[steps.kind.length] = Math.max(clock, end);
  return times;
}
