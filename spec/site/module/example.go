// SPDX-License-Identifier: Apache-2.0

package module

import (
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Example shows a line of limits.conf(5) as an entry.
func (*limitDoc) Example(instead *tree.Value) string {
	w := shape.Line(instead)
	if len(w) != 4 {
		w = []string{"root", "hard", "nofile", "1024"}
	}
	return fmt.Sprintf("{domain: %s, type: %s, item: %s, value: %s}", shape.Quoted(w[0]), shape.Quoted(w[1]),
		shape.Quoted(w[2]), shape.Quoted(w[3])) + converts
}

// converts says what turns whole files into entries.
const converts = "; 'caisson import' converts such files"

// Example shows a line of fstab(5) as an entry.
func (*mountDoc) Example(instead *tree.Value) string {
	w := shape.Line(instead)
	if len(w) < 3 || !strings.HasPrefix(w[1], "/") {
		w = []string{"/dev/disk/by-label/data", "/srv", "ext4", "noatime"}
	}
	options := ""
	if len(w) > 3 {
		options = ", options: " + shape.Quoted(w[3])
	}
	return fmt.Sprintf("{mnt_tgt: %s, device: %s, type: %s%s}", shape.Quoted(w[1]), shape.Quoted(w[0]), shape.Quoted(w[2]), options) + converts
}

// Example shows a line of sources.list(5) as a repository.
func (*repositoryDoc) Example(instead *tree.Value) string {
	w := shape.Line(instead)
	if len(w) > 0 && strings.HasPrefix(w[0], "deb") {
		w = w[1:]
	}
	if len(w) > 0 && strings.HasPrefix(w[0], "[") { // options, which may have blanks
		for len(w) > 0 && !strings.HasSuffix(w[0], "]") {
			w = w[1:]
		}
		w = w[min(1, len(w)):]
	}
	if len(w) < 3 || !strings.Contains(w[0], ":") {
		w = []string{"https://apt.example.org/debian", "trixie", "main"}
	}
	return fmt.Sprintf("{url: %q, distributions: [%s], components: [%s], gpgkey: …}", w[0], w[1], strings.Join(w[2:], ", "))
}

// Example shows packages as apt-get(8) takes them.
func (*packageDoc) Example(instead *tree.Value) string {
	var out []string
	for _, w := range shape.Line(instead) {
		name, version, pinned := strings.Cut(w, "=")
		switch {
		case pinned:
			out = append(out, fmt.Sprintf("{name: %s, version: %q}", name, version))
		case strings.Trim(w[:1], "0123456789") == "":
			out = append(out, fmt.Sprintf("{name: …, version: %q}", w))
		default:
			out = append(out, "{name: "+shape.Quoted(w)+"}")
		}
	}
	if len(out) > 4 {
		out = append(out[:4], "…")
	}
	return strings.Join(out, ", ")
}

// Example shows names of modules that stand where the settings belong.
func (*kernelModulesDoc) Example(instead *tree.Value) string {
	if len(instead.List) > 0 && instead.List[0].Kind == tree.Scalar {
		return "{load: [" + shape.Quoted(instead.List[0].Text) + "]}"
	}
	if len(instead.Fields) > 0 {
		return ""
	}
	return "{load: [br_netfilter]}"
}

// Example shows a script that stands where an entry belongs.
func (*execDoc) Example(instead *tree.Value) string {
	return insteadOfText(instead, `{data: "#!/bin/bash …", rerun_policy: once_successfully}`)
}

// Example shows a text that stands where a file belongs.
func (*fileDoc) Example(instead *tree.Value) string {
	return insteadOfText(instead, "{content: "+shape.Quoted(instead.Text)+"}")
}

// Example shows the word of a state, or a text, as an entry.
func (*unitDoc) Example(instead *tree.Value) string {
	return insteadOfText(instead, "{state: enabled, run: started}, or {content: …} for its file")
}

func insteadOfText(instead *tree.Value, example string) string {
	if instead.Kind != tree.Scalar {
		return ""
	}
	return example
}
