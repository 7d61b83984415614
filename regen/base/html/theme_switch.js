// The button that changes between light and dark; at first the page is as the browser says.

function followTheme() {
  const toggle = document.getElementById("theme");
  const preference = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : preference.matches);
  const show = () => {
    toggle.setAttribute("aria-pressed", String(isDark()));
    theme.changed();
  };
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    show();
  });
  preference.addEventListener("change", show);
  show();
}
