// SPDX-License-Identifier: Apache-2.0
// Pages with data-refresh get their content again after that many seconds, while they are seen and nobody types.
"use strict";
(() => {
  const seconds = Number(document.body.dataset.refresh);
  const top = document.querySelector("header.top");
  if (!seconds || !top) return;

  const button = document.createElement("button");
  button.type = "button";
  button.className = "refresh";
  top.append(button);
  let isAsking = false;
  let isOn = sessionStorage.getItem("refresh") !== "off";

  function show(failed) {
    button.textContent = !isOn ? "Refresh: off" : failed ? "Refresh: no answer" : `Refresh: ${seconds} s`;
    button.setAttribute("aria-pressed", String(isOn));
  }

  button.addEventListener("click", () => {
    isOn = !isOn;
    sessionStorage.setItem("refresh", isOn ? "on" : "off");
    show(false);
  });

  // Elements of the content that are the same as one with the focus: links to the same page, else the same tag.
  function alike(element, content) {
    const target = element.getAttribute("href");
    const found = Array.from(content.querySelectorAll(element.tagName));
    return target === null ? found : found.filter((one) => one.getAttribute("href") === target);
  }

  async function refresh() {
    const content = document.getElementById("content");
    const types = () => document.activeElement && document.activeElement.matches("input, select, textarea");
    if (isAsking || !isOn || document.hidden || types()) return;
    let fresh;
    isAsking = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
      if (!answer.ok) throw new Error(answer.statusText);
      fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("content");
    } catch {
      show(true);
      return;
    } finally {
      isAsking = false;
    }
    if (!fresh || types()) return;
    const active = document.activeElement;
    const place = content.contains(active) && active !== content ? alike(active, content).indexOf(active) : -1;
    const opened = Array.from(content.querySelectorAll("details"), (one) => one.open);
    const scrolled = Array.from(content.querySelectorAll(".scroll"), (one) => one.scrollLeft);
    content.replaceChildren(...fresh.childNodes);
    content.querySelectorAll("details").forEach((one, at) => { if (at < opened.length) one.open = opened[at]; });
    content.querySelectorAll(".scroll").forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
    if (place >= 0) {
      const again = alike(active, content)[place];
      if (again) again.focus({ preventScroll: true });
    }
    show(false);
  }

  show(false);
  setInterval(refresh, seconds * 1000);
})();
