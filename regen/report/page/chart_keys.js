// How charts over the steps are moved: wheel, drag, pinch, click, and the keyboard.

const KEYS = {
  ArrowLeft: (view) => view.setStep(view.step - 1),
  ArrowRight: (view) => view.setStep(view.step + 1),
  PageUp: (view) => view.pan(-0.5),
  PageDown: (view) => view.pan(0.5),
  Home: (view) => view.setStep(0),
  End: (view) => view.setStep(view.axis.count - 1),
  "+": (view) => view.zoom(0.5, view.axis.at(view.step)),
  "=": (view) => view.zoom(0.5, view.axis.at(view.step)),
  "-": (view) => view.zoom(2, view.axis.at(view.step)),
  0: (view) => view.showAll(),
  p: (view) => view.setStep(view.plan.summary.peak_step),
};

const KEY_HELP = "Arrow keys: step by step. + and -: zoom. 0: whole step. p: the peak. Page up and down: move.";

// `left`: pixels before the axis. `onClick(place, y)`: a place of the axis.
function moveWithPointerAndKeys(canvas, view, left, onClick) {
  const node = canvas.node;
  const place = (event) => {
    const box = node.getBoundingClientRect();
    const fraction = (event.clientX - box.left - left) / Math.max(1, canvas.width - left);
    return view.from + (view.to - view.from) * Math.min(1, Math.max(0, fraction));
  };
  node.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? null : KEYS[event.key];
    if (!act) return;
    act(view);
    event.preventDefault();
  });
  node.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) < Math.abs(event.deltaY) && document.activeElement !== node) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) view.pan((event.deltaX || event.deltaY) / Math.max(1, canvas.width));
    else view.zoom(1.0015 ** event.deltaY, place(event));
  }, {passive: false});
  dragWithPointers(node, view, () => Math.max(1, canvas.width - left), (event) => {
    const box = node.getBoundingClientRect();
    onClick(place(event), event.clientY - box.top);
  });
}

// One pointer moves the axis, two of them zoom; one that hardly moves is a click.
function dragWithPointers(node, view, width, onClick) {
  const pointers = new Map();
  let moved = 0;
  node.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, event.clientX);
    moved = 0;
  });
  node.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (before === undefined || event.clientX === before) return;
    const others = [...pointers].filter(([id]) => id !== event.pointerId);
    moved += Math.abs(event.clientX - before);
    if (moved > 3 && !node.hasPointerCapture(event.pointerId)) node.setPointerCapture(event.pointerId);
    if (others.length === 0) view.pan((before - event.clientX) / width());
    else view.zoom(Math.abs(before - others[0][1] || 1) / Math.max(1, Math.abs(event.clientX - others[0][1])));
    pointers.set(event.pointerId, event.clientX);
  });
  node.addEventListener("pointerup", (event) => {
    if (pointers.delete(event.pointerId) && moved <= 3) onClick(event);
  });
  node.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
}
