// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rooms groups packages for the map: the first prefix that matches names the
// room. What matches none is left out, such as the leaves below internal, which
// everything imports.
var rooms = []string{
	"spec/rules", "spec/site", "spec",
	"spec/refusal", "oci/trust",
	"oci/keys", "oci/sign", "oci/registry", "oci",
	"layers",
	"builder/release", "fleet", "media/netboot", "sandbox",
	"builder",
	"bootagent/items/item", "bootagent/items", "bootagent/boot", "bootagent/record/journal", "bootagent/record/state", "bootagent/record/track", "bootagent/fetch/download", "bootagent/node",
	"cmd/caisson-agent", "cmd/caisson",
}

func roomOf(path string) string {
	for _, r := range rooms {
		if path == r || strings.HasPrefix(path, r+"/") {
			return r
		}
	}
	return ""
}

// roomGraph returns which rooms each room imports, without those that it also
// reaches through another.
func roomGraph(all []Package) map[string][]string {
	direct := map[string]map[string]bool{}
	for _, p := range all {
		from := roomOf(p.own())
		if from == "" {
			continue
		}
		if direct[from] == nil {
			direct[from] = map[string]bool{}
		}
		for _, dep := range p.Imports {
			own, ok := strings.CutPrefix(dep, Module+"/")
			if to := roomOf(own); ok && to != "" && to != from {
				direct[from][to] = true
			}
		}
	}
	graph := map[string][]string{}
	for from, to := range direct {
		graph[from] = []string{}
		for _, t := range slices.Sorted(maps.Keys(to)) {
			through := func(other string) bool { return other != t && reaches(direct, other, t, map[string]bool{from: true}) }
			if !slices.ContainsFunc(slices.Collect(maps.Keys(to)), through) {
				graph[from] = append(graph[from], t)
			}
		}
	}
	return graph
}

func reaches(g map[string]map[string]bool, from, to string, seen map[string]bool) bool {
	if g[from][to] {
		return true
	}
	seen[from] = true
	for next := range g[from] {
		if !seen[next] && reaches(g, next, to, seen) {
			return true
		}
	}
	return false
}

// cycle returns rooms that import each other in a circle, nil when none do.
func cycle(g map[string][]string) []string {
	var walk func(path []string) []string
	walk = func(path []string) []string {
		for _, to := range g[path[len(path)-1]] {
			if i := slices.Index(path, to); i >= 0 {
				return append(slices.Clone(path[i:]), to)
			}
			if c := walk(append(slices.Clone(path), to)); c != nil {
				return c
			}
		}
		return nil
	}
	for _, room := range slices.Sorted(maps.Keys(g)) {
		if c := walk([]string{room}); c != nil {
			return c
		}
	}
	return nil
}

// floors puts each room above everything that it imports.
func floors(g map[string][]string) map[string]int {
	floor := map[string]int{}
	var of func(room string, depth int) int
	of = func(room string, depth int) int {
		if f, ok := floor[room]; ok || depth > len(g) {
			return f
		}
		f := 0
		for _, to := range g[room] {
			f = max(f, of(to, depth+1)+1)
		}
		floor[room] = f
		return f
	}
	for _, room := range slices.Sorted(maps.Keys(g)) {
		of(room, 0)
	}
	return floor
}

const (
	boxWide, boxHigh = 150, 34
	gapWide, gapHigh = 24, 56
)

type place struct{ x, y int }

// layOut gives each room a place: floors from the bottom up, on each floor near
// the rooms that it imports.
func layOut(g map[string][]string) (at map[string]place, wide, high int) {
	floor := floors(g)
	var rows [][]string
	for _, room := range slices.Sorted(maps.Keys(g)) {
		for len(rows) <= floor[room] {
			rows = append(rows, nil)
		}
		rows[floor[room]] = append(rows[floor[room]], room)
	}
	widest := 0
	for _, row := range rows {
		widest = max(widest, len(row))
	}
	wide = widest*(boxWide+gapWide) + gapWide
	high = len(rows)*(boxHigh+gapHigh) + gapHigh
	at = map[string]place{}
	for n, row := range rows {
		middle := func(room string) int {
			sum := 0
			for _, to := range g[room] {
				sum += at[to].x
			}
			return sum / max(1, len(g[room]))
		}
		slices.SortStableFunc(row, func(a, b string) int { return cmp.Compare(middle(a), middle(b)) })
		left := (wide - len(row)*(boxWide+gapWide) + gapWide) / 2
		for i, room := range row {
			at[room] = place{left + i*(boxWide+gapWide), high - (n+1)*(boxHigh+gapHigh)}
		}
	}
	return at, wide, high
}

// Draw returns the map of all packages as SVG: an arrow points to what is
// imported.
func Draw(all []Package) string {
	g := roomGraph(all)
	at, wide, high := layOut(g)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", wide, high)
	b.WriteString("<title>Packages and what they import</title>\n" +
		`<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#68788a"/></marker></defs>` + "\n" +
		`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	for _, from := range slices.Sorted(maps.Keys(g)) {
		for _, to := range g[from] {
			a, z := at[from], at[to]
			x1, y1, x2, y2 := a.x+boxWide/2, a.y+boxHigh, z.x+boxWide/2, z.y
			fmt.Fprintf(&b, `<path d="M%d %dC%d %d %d %d %d %d" fill="none" stroke="#68788a" marker-end="url(#a)"/>`+"\n", x1, y1, x1, y1+30, x2, y2-30, x2, y2-1)
		}
	}
	for _, room := range slices.Sorted(maps.Keys(g)) {
		p := at[room]
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="5" fill="%s" stroke="#33475b"/><text x="%d" y="%d" text-anchor="middle" fill="#12212f">%s</text>`+"\n",
			p.x, p.y, boxWide, boxHigh, colour(room), p.x+boxWide/2, p.y+boxHigh/2+5, room)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// colour tells the node's side, the operator's side and what both share apart.
func colour(room string) string {
	switch {
	case strings.HasPrefix(room, "bootagent") || room == "cmd/caisson-agent":
		return "#d9ecd9"
	case slices.Contains([]string{"builder", "builder/release", "fleet", "media/netboot", "sandbox", "cmd/caisson", "spec/site", "oci/registry"}, room):
		return "#dbe6f6"
	}
	return "#f6eed2"
}
