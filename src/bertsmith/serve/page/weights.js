/** Attention weights as the server packs them, and what can be read off them. */

/** Weights of all layers and heads over `size` tokens: rows look, columns are looked at. */
export class Weights {
  constructor({ layers, heads, size, weights }) {
    Object.assign(this, { layers, heads, size });
    const bytes = Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    this.values = Float32Array.from({ length: bytes.length / 4 }, (_, number) => view.getFloat32(4 * number, true));
    if (this.values.length !== layers * heads * size * size) throw new Error("weights of an unexpected size");
  }

  /** One head's matrix, row after row; `head` null is the mean of the layer's heads. */
  matrix(layer, head) {
    const area = this.size * this.size;
    const of = (one) => this.values.subarray((layer * this.heads + one) * area, (layer * this.heads + one + 1) * area);
    if (head !== null) return of(head);
    const mean = new Float32Array(area);
    for (let one = 0; one < this.heads; one += 1)
      of(one).forEach((value, place) => (mean[place] += value / this.heads));
    return mean;
  }

  /** The `count` columns that a row looks at most, strongest first. */
  strongest(matrix, row, count) {
    const columns = [...Array(this.size).keys()];
    const weight = (column) => matrix[row * this.size + column];
    return columns.sort((one, other) => weight(other) - weight(one)).slice(0, count);
  }
}
