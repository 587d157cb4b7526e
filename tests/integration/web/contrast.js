// SPDX-License-Identifier: Apache-2.0
// Every text of the page whose contrast to what is below it is less than 4.5 (WCAG 2, level AA), as sentences.
(() => {
  const parse = (text) => {
    const all = text.match(/[\d.]+/g).map(Number);
    return all.length > 3 ? all : [...all, 1];
  };
  const over = (top, below) => top.slice(0, 3).map((one, at) => one * top[3] + below[at] * (1 - top[3]));
  const linear = (one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((one) => linear(one / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const bad = [];
  for (const element of document.querySelectorAll("body *")) {
    const isText = [...element.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
    if (!isText || !element.checkVisibility() || element.closest(".unseen, .skip, title, option")) continue;
    const style = getComputedStyle(element);
    let colour = style.color;
    let below = ground(element);
    if (element.tagName === "text") {
      colour = style.fill;
      // A text on a hatch has a stroke of its own around it; any other stands on its box.
      const area = element.closest("svg").querySelector(".area");
      const fill = style.stroke.startsWith("rgb") ? style.stroke : area && getComputedStyle(area).fill;
      if (fill && fill.startsWith("rgb")) below = over(parse(fill), below);
    }
    const [one, other] = [light(over(parse(colour), below)), light(below)].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const name = `${element.tagName}.${element.className.baseVal ?? element.className}`;
    if (ratio < 4.5) bad.push(`${name} ${ratio.toFixed(2)}: ${element.textContent.trim().slice(0, 40)}`);
  }
  return [...new Set(bad)];
})();
