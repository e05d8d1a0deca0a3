// Checks that run inside a page. Each function returns descriptions of the problems it finds.

/**
 * Returns a description of each mark or text that is misplaced in its plot, and of each pair of
 * overlapping texts.
 */
export function findMisplacedMarks() {
  const wrong = [];
  const box = (element) => element.getBoundingClientRect();
  for (const svg of document.querySelectorAll("svg.tg-plot")) {
    const frame = box(svg);
    if (frame.width === 0) continue; // Hidden: drawn for the other width.
    const plot = svg.querySelector("title").textContent;
    for (const shape of svg.querySelectorAll("line, circle, rect, path, polyline, text")) {
      const { left, right, top, bottom } = box(shape);
      const outside =
        left < frame.left - 1 || right > frame.right + 1 || top < frame.top - 1 || bottom > frame.bottom + 1;
      if (outside) wrong.push(`${plot}: ${shape.outerHTML.slice(0, 120)} is outside`);
      if (/NaN|inf/i.test(shape.outerHTML))
        wrong.push(`${plot}: ${shape.outerHTML.slice(0, 120)} has an invalid position`);
    }
    const texts = [...svg.querySelectorAll("text")].map((text) => [text.textContent, box(text)]);
    texts.forEach(([one, a], i) => {
      for (const [other, b] of texts.slice(i + 1)) {
        const apart = a.right - 1 < b.left || b.right - 1 < a.left || a.bottom - 3 < b.top || b.bottom - 3 < a.top;
        if (!apart) wrong.push(`${plot}: "${one}" and "${other}" overlap`);
      }
    });
  }
  return wrong;
}

/**
 * Returns a description of each element that overflows its panel, and one of the page if it is
 * wider than the window.
 */
export function findOverflow() {
  const wrong = [];
  const { scrollWidth, clientWidth } = document.documentElement;
  if (clientWidth >= 1280)
    for (const box of document.querySelectorAll(".scroll"))
      if (box.scrollWidth > box.clientWidth)
        wrong.push(`${box.getAttribute("aria-label")} is ${box.scrollWidth} px wide in ${box.clientWidth} px`);
  if (scrollWidth > clientWidth) wrong.push(`the page is ${scrollWidth} px wide in a window of ${clientWidth} px`);
  for (const panel of document.querySelectorAll(".panel")) {
    const edge = panel.getBoundingClientRect().right;
    for (const inner of panel.querySelectorAll("*")) {
      if (inner.closest(".scroll, pre, svg, thead")) continue;
      if (inner.getBoundingClientRect().right > edge + 1) wrong.push(`${inner.outerHTML.slice(0, 120)} overflows`);
    }
  }
  return wrong;
}

/**
 * Returns the number of different colours in a PNG picture, up to 100, and the picture's size in
 * pixels. `picture` is in base64. A blank page has one or two colours.
 */
export async function countColours(picture) {
  const image = new Image();
  image.src = `data:image/png;base64,${picture}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer);
  const seen = new Set();
  for (const pixel of pixels) {
    seen.add(pixel);
    if (seen.size >= 100) break;
  }
  return { colours: seen.size, width: image.width, height: image.height };
}
