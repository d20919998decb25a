// SPDX-License-Identifier: Apache-2.0

package server

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/test/require"
)

// axe finds what people who see little, or use no mouse, cannot use: https://github.com/dequelabs/axe-core.
func axe(t *testing.T) string {
	t.Helper()
	f, err := os.Open("testdata/axe.min.js.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // only read
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// found lists each violation with where it is.
const found = `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r =>
	r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.target.join(" ") + ": " + n.failureSummary.replace(/\s+/g, " "))))`

// measured lists what axe does not measure: borders of controls paler than 3:1 beside what they are
// on, links lower than 24 pixels outside of running text, tables without a caption, heads without a
// scope or a text, placeholders that are cut, fields of a form that differ in height, whole digests in
// cells, short ones that are broken, on a phone numbers that do not say what they count and cells that
// say what nothing is, and what is wider than the window.
const measured = `(() => {
	const out = [], light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126*r + .7152*g + .0722*b };
	const shown = e => e.getClientRects().length > 0, paper = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!c.endsWith(", 0)")) return c } return "rgb(255, 255, 255)" };
	for (const e of document.querySelectorAll("input:not([type=hidden], [type=checkbox]), select, button, .tile")) {
		const a = light(getComputedStyle(e).borderTopColor), b = light(paper(e.parentElement)), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (shown(e) && ratio < 3) out.push("border " + ratio.toFixed(2) + " of " + e.outerHTML.slice(0, 80));
	}
	for (const e of document.querySelectorAll("td > a, nav a, .tags a, .tile")) if (shown(e) && e.getBoundingClientRect().height < 24) out.push("low: " + e.outerHTML);
	for (const e of document.querySelectorAll("table")) if (!e.caption || !e.caption.textContent.trim()) out.push("no caption: " + e.outerHTML.slice(0, 80));
	for (const e of document.querySelectorAll("th")) if (!e.scope || !e.textContent.trim()) out.push("head: " + e.outerHTML);
	const pen = document.createElement("canvas").getContext("2d");
	for (const e of document.querySelectorAll("input[placeholder]")) {
		const s = getComputedStyle(e);
		pen.font = s.font;
		if (shown(e) && pen.measureText(e.placeholder).width > e.clientWidth - parseFloat(s.paddingLeft) - parseFloat(s.paddingRight)) out.push("cut: " + e.outerHTML);
	}
	for (const f of document.querySelectorAll("form.filter")) {
		const heights = new Set([...f.querySelectorAll("input:not([type=hidden], [type=checkbox]), select")].filter(shown).map(e => e.getBoundingClientRect().height));
		if (heights.size > 1) out.push("fields are " + [...heights].join(" and ") + " high");
	}
	for (const e of document.querySelectorAll("td")) {
		const says = e.textContent.trim();
		if (/[0-9a-f]{64}/.test(says)) out.push("a whole digest: " + says);
		if (innerWidth < 700 && e.dataset.is && shown(e) && getComputedStyle(e, "::before").content !== "none" && ["", "–"].includes(says)) out.push("nothing: " + e.outerHTML);
	}
	if (innerWidth < 700) for (const e of document.querySelectorAll(".nodes td.number:not([data-is])")) out.push("a number of what: " + e.outerHTML);
	for (const e of document.querySelectorAll("td.at code")) if (e.getClientRects().length > 1) out.push("broken: " + e.outerHTML);
	if (document.documentElement.scrollWidth > innerWidth) out.push("wider than the window");
	return out;
})()`

// TestPagesCanBeUsed: axe-core finds nothing on any page, on a phone in the dark.
func TestPagesCanBeUsed(t *testing.T) {
	require.Slow(t)
	canBeUsed(t, []string{"dark"}, 420)
}

// TestLongPagesCanBeUsed: nor by day, nor in a wide window.
func TestLongPagesCanBeUsed(t *testing.T) {
	require.Long(t)
	canBeUsed(t, []string{"light", "dark"}, 1440, 420)
}

func canBeUsed(t *testing.T, papers []string, widths ...int64) {
	t.Helper()
	ctx := browser(t)
	s, names, _ := onCall(t)
	script := axe(t)
	if err := chromedp.Run(ctx, chromedp.Navigate(s.url+"/"), chromedp.WaitVisible("#token")); err != nil {
		t.Fatal(err)
	}
	look := func(path, as string) {
		t.Helper()
		var by, more []string
		promised := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
		if err := chromedp.Run(ctx, chromedp.Navigate(s.url+path), chromedp.WaitVisible("main"), chromedp.Evaluate(script, nil), chromedp.Evaluate(found, &by, promised), chromedp.Evaluate(measured, &more)); err != nil {
			t.Fatal(path, err)
		}
		for _, what := range append(by, more...) {
			t.Errorf("%s, %s: %s", path, as, what)
		}
		keep(t, ctx, "used-"+as+strings.NewReplacer("/", "-", "?", "-", "=", "-", "&", "-").Replace(path))
	}
	look("/login", "light")
	var spoiled int
	if err := chromedp.Run(ctx, chromedp.Evaluate(`document.querySelector("label").remove(); document.querySelector("#token").style.borderColor = "#ddd"`, nil),
		chromedp.Evaluate("("+found+").then(list => list.length > 0 && ("+measured+").length > 0 ? 1 : 0)", &spoiled, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }),
		chromedp.Reload(), chromedp.WaitVisible("#token")); err != nil || spoiled == 0 {
		t.Fatalf("a field without a label and with a pale border is not found: %v", err)
	}
	if err := chromedp.Run(ctx, chromedp.SendKeys("#token", s.tokens[people.Operator]+"\n"), chromedp.WaitVisible(".tiles")); err != nil {
		t.Fatal(err)
	}
	for _, paper := range papers {
		for _, width := range widths {
			if err := chromedp.Run(ctx, chromedp.EmulateViewport(width, 900), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: paper}})); err != nil {
				t.Fatal(err)
			}
			for _, path := range usedPages(names) {
				look(path, fmt.Sprintf("%s-%d", paper, width))
			}
		}
	}
}

// usedPages are each page, some with what they show only when asked.
func usedPages(names []string) []string {
	list := []string{"/nodes/" + names[0], "/nodes/" + names[1], "/nodes/" + names[3], "/nodes/none", "/nodes?condition=sick", "/nodes?label=rack%3Dr1", "/nodes?setting=labels%2Frack%3Dr1", "/nodes?setting=labels%2Frak",
		"/nodes?group=rack&most=20&page=2&column=health&column=sync&column=activity&column=drift&column=holds&column=agent",
		"/generations/3..4", "/generations/between?node=n1&beside=n2", "/generations/99", "/replace/" + names[0], "/audit?who=x"}
	for _, p := range allPages {
		if p.Main {
			list = append(list, p.Path)
		}
	}
	return list
}

// TestPagesByKeyboard: Tab reaches everything on the lists of nodes and of generations that can be
// used, each shows that it is reached, and the first leads past the head.
func TestPagesByKeyboard(t *testing.T) {
	require.Slow(t)
	ctx := browser(t)
	s, _, _ := onCall(t)
	if err := chromedp.Run(ctx, chromedp.Navigate(s.url+"/"), chromedp.WaitVisible("#token"), chromedp.SendKeys("#token", s.tokens[people.Operator]+"\n"), chromedp.WaitVisible(".tiles")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/nodes?label=rack%3Dr1&most=3", "/generations?page=2"} {
		byKeyboard(t, ctx, s.url+path)
	}
}

// TestLongPagesByKeyboard: and on every other page.
func TestLongPagesByKeyboard(t *testing.T) {
	require.Long(t)
	ctx := browser(t)
	s, names, _ := onCall(t)
	if err := chromedp.Run(ctx, chromedp.Navigate(s.url+"/"), chromedp.WaitVisible("#token"), chromedp.SendKeys("#token", s.tokens[people.Operator]+"\n"), chromedp.WaitVisible(".tiles")); err != nil {
		t.Fatal(err)
	}
	for _, path := range usedPages(names) {
		byKeyboard(t, ctx, s.url+path)
	}
}

// TestTimesOnPages: no time is written as Go prints one.
func TestTimesOnPages(t *testing.T) {
	s, names, _ := onCall(t)
	for _, path := range usedPages(names) {
		_, text := s.ask("GET", path, nil, "Authorization", s.bearer(people.Reader), "Accept", "text/html")
		if found := regexp.MustCompile(`.{0,80}\d[mh]0[ms]\b`).FindString(text); found != "" {
			t.Errorf("%s: %s", path, found)
		}
		if path == "/nodes/"+names[0] && !strings.Contains(text, ">2m</td>") {
			t.Errorf("how long a step of the boot took:\n%s", text)
		}
	}
}

func byKeyboard(t *testing.T, ctx context.Context, at string) {
	t.Helper()
	var first string
	var all int
	if err := chromedp.Run(ctx, chromedp.Navigate(at), chromedp.WaitVisible("main"),
		chromedp.Evaluate(`document.body.focus(); window.want = [...document.querySelectorAll("a, button, input:not([type=hidden]), select, summary")].filter(e => e.getClientRects().length > 0 && !e.closest("details:not([open]) > :not(summary)")); want.length`, &all),
		chromedp.KeyEvent("\t"), chromedp.Evaluate(`document.activeElement.textContent`, &first)); err != nil {
		t.Fatal(err)
	}
	if first != "Skip to content" || all < 10 {
		t.Errorf("%s: Tab leads to %q first, of %d", at, first, all)
	}
	var unseen, missed []string
	err := chromedp.Run(ctx, chromedp.Evaluate(`window.reached = new Set(); window.unseen = []`, nil), chromedp.ActionFunc(func(ctx context.Context) error {
		for range all + 5 {
			if err := chromedp.Evaluate(`(() => { const e = document.activeElement; reached.add(e); const s = getComputedStyle(e); if (e !== document.body && (s.outlineStyle === "none" || s.outlineWidth === "0px")) unseen.push(e.outerHTML.slice(0, 80)) })()`, nil).Do(ctx); err != nil {
				return err
			}
			if err := chromedp.KeyEvent("\t").Do(ctx); err != nil {
				return err
			}
		}
		return nil
	}), chromedp.Evaluate(`unseen`, &unseen), chromedp.Evaluate(`want.filter(e => e.isConnected && !reached.has(e)).map(e => e.outerHTML.slice(0, 80))`, &missed))
	if err != nil {
		t.Fatal(err)
	}
	if len(unseen)+len(missed) > 0 {
		t.Errorf("%s: not seen when reached: %q\nnot reached: %q", at, unseen, missed)
	}
}
