// A button in each block of code that copies its text; Python's prompts and shown outputs stay behind.
document.addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent = `div.highlight { position: relative }
    .copy { position: absolute; top: 0.3em; right: 0.3em; opacity: 0.3; font-size: 75%; cursor: pointer }
    div.highlight:hover .copy, .copy:focus { opacity: 1 }`;
  document.head.append(style);
  for (const block of document.querySelectorAll("div.highlight pre")) {
    const button = Object.assign(document.createElement("button"), { className: "copy", textContent: "copy" });
    button.addEventListener("click", async () => {
      const lines = block.innerText.split("\n");
      const typed = lines.filter((line) => /^(>>>|\.\.\.)( |$)/.test(line)).map((line) => line.slice(4));
      await navigator.clipboard.writeText((typed.length ? typed : lines).join("\n"));
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    block.parentElement.append(button);
  }
});
