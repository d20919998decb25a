// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Write prints the explanation as a tree: each value with the place it was
// written, and for an overridden one what it replaced.
func (e *Explanation) Write(w io.Writer) {
	labels := plain.Each(slices.Sorted(maps.Keys(e.Labels)), func(k string) string { return k + "=" + report.Printable(e.Labels[k], 60) })
	title := "node " + report.Printable(e.Node, 128)
	if len(labels) > 0 {
		title += " (" + strings.Join(labels, ", ") + ")"
	}
	if !e.Known {
		title += ": not in the site, explained as if it were"
	}
	fmt.Fprintln(w, title)
	if len(e.KernelArgs) > 0 {
		fmt.Fprintf(w, "kernel arguments: %s\n", report.Printable(strings.Join(e.KernelArgs, " "), 400))
	}
	for _, l := range e.lines {
		switch {
		case l.target != "":
			fmt.Fprintf(w, "\n%-52s %s\n", strings.TrimSpace(l.key+" "+l.text), l.target)
		case l.origin == nil:
			fmt.Fprintf(w, "%s%s\n", strings.Repeat("  ", l.depth), keyText(l.key))
		default:
			left := strings.Repeat("  ", l.depth) + keyText(l.key) + " " + report.Printable(l.text, 64)
			fmt.Fprintf(w, "%-52s %s\n", left, l.origin)
		}
	}
	if len(e.Defaults) > 0 {
		fmt.Fprintf(w, "\n%-52s default\n", "not written, but in force")
		for _, k := range slices.Sorted(maps.Keys(e.Defaults)) {
			text := fmt.Sprint(e.Defaults[k])
			if list, ok := e.Defaults[k].([]string); ok {
				text = strings.Join(list, " ")
			}
			fmt.Fprintf(w, "  %s: %s\n", strings.TrimPrefix(k, "/conf/"), text)
		}
	}
}

// String is the place, the override if it was one, and what that replaced.
func (o *Origin) String() string {
	out := "default"
	if o.File != "" {
		out = fmt.Sprintf("%s:%d", o.File, o.Line)
	}
	if o.Source != "base" && o.Source != "default" {
		out += " " + o.Source
		if o.Over != "" {
			out += ", over " + report.Printable(o.Over, 40)
		}
	}
	return out
}

func keyText(key string) string {
	if key == "-" {
		return key
	}
	return report.Printable(key, 64) + ":"
}
