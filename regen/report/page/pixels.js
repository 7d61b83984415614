// Rectangles written straight into the pixels of a canvas: ten thousand of them in a few milliseconds, also
// where no graphics card draws.

class Pixels {
  // The part of a canvas right of `left` and above `foot`, in CSS pixels; it is written in those of the screen.
  constructor(context, left, width, height) {
    this.scale = context.getTransform().a;
    this.context = context;
    this.left = Math.round(left * this.scale);
    this.width = Math.max(1, Math.round((width - left) * this.scale));
    this.height = Math.max(1, Math.round(height * this.scale));
    this.image = context.createImageData(this.width, this.height);
    this.data = new Uint32Array(this.image.data.buffer);
  }

  // From (x0, y0) to (x1, y1) in pixels of the screen; at least one pixel.
  fill(x0, y0, x1, y1, colour) {
    const left = Math.max(0, Math.floor(x0 + 0.5));
    const right = Math.min(this.width, Math.max(left + 1, Math.floor(x1 + 0.5)));
    const upper = Math.max(0, Math.floor(y0 + 0.5));
    const lower = Math.min(this.height, Math.max(upper + 1, Math.floor(y1 + 0.5)));
    if (right - left === 1) {
      for (let at = upper * this.width + left, end = lower * this.width; at < end; at += this.width) this.data[at] = colour;
      return;
    }
    for (let row = upper; row < lower; row += 1) this.data.fill(colour, row * this.width + left, row * this.width + right);
  }

  // Onto the canvas; what is drawn before is covered where something was filled only if it is put first.
  put() {
    this.context.putImageData(this.image, this.left, 0);
  }
}

// A colour of the style sheet as a number for pixels, mixed with the ground for what is dim.
const pixelColours = {
  context: null,
  known: new Map(),
  channels(colour) {
    this.context ??= document.createElement("canvas").getContext("2d");
    this.context.fillStyle = colour;
    const hex = this.context.fillStyle;
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  },
  of(colour, strength = 1) {
    const key = `${colour} ${strength}`;
    if (!this.known.has(key)) {
      const ground = this.channels(theme.colour("ground"));
      const [r, g, b] = this.channels(colour).map((one, i) => Math.round(one * strength + ground[i] * (1 - strength)));
      this.known.set(key, ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0);
    }
    return this.known.get(key);
  },
};
theme.onChange(() => pixelColours.known.clear());
