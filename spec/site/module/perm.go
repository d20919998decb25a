// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type permDoc struct {
	Paths         []spec.PermPath `site:"paths"`
	Rerun         shape.Text      `site:"rerun_policy" doc:"always (when absent), never or once_successfully"`
	Interval      shape.Text      `site:"rerun_interval" doc:"seconds between runs, at least 60, or infinity"`
	IgnoreMissing shape.Flag      `site:"ignore_missing"`
}

// permShape is perm in its own shape or, as older sites have it, a bare list.
type permShape struct{ permDoc }

func (*permShape) Schema(g *shape.Generator) any {
	return map[string]any{"anyOf": []any{g.Of(reflect.TypeFor[permDoc](), false), g.Of(reflect.TypeFor[[]spec.PermPath](), false)}}
}

var permModule = Module{Name: "perm", Image: true, // of baked paths; the rest is on the node
	Doc: reflect.TypeFor[shape.Raw[permShape]](), About: "owners and modes of paths",
	Normal: normalPerm, Compile: (*Checker).perm,
	Baked: func(r *spec.Recipe) any { return r.Perm },
	Lines: func(i *spec.Items) (out []Line) {
		if i.Perm == nil {
			return nil
		}
		for _, p := range i.Perm.Paths { // the last entry of a path wins
			out = append(out, Line{p.Path, strings.TrimSpace(p.Mode + " " + p.Owner + ":" + p.Group)})
		}
		if p := i.Perm; p.Rerun != "" || p.Interval != 0 || p.IgnoreMissing {
			out = append(out, Line{"policy", strings.TrimSpace(p.Rerun + " " + strconv.FormatInt(p.Interval, 10) + " " +
				strconv.FormatBool(p.IgnoreMissing))})
		}
		return out
	},
}

// bakedDirs hold what the layer brings; everything else of a node is its own.
var bakedDirs = []string{"/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr"}

// baked reports whether a path or pattern lies in the layer: its first component,
// taken literally, is one of the layer's. What cannot be told is the node's.
func baked(p string) bool {
	return slices.ContainsFunc(bakedDirs, func(dir string) bool { return rules.Within(p, dir) })
}

// normalPerm makes the older bare list a map.
func normalPerm(c *shape.Checker, v *tree.Value) *tree.Value {
	if v.Kind == tree.Sequence {
		c.Warnf(v.At, "older-shape", "put the list below perm.paths", "perm as a bare list is an older shape")
	}
	return normalPermList(v)
}

// OlderPerms takes conf.perms, which the manual shows and Divingbell ignores.
func OlderPerms(c *shape.Checker, conf, perms *tree.Value) *tree.Value {
	c.Push("perms")
	defer c.Pop()
	if conf.Get("perm") != nil {
		c.Errorf(perms.At, "older-shape", "keep perm", "perm and perms are both given")
		return conf.Without("perms")
	}
	c.Warnf(perms.At, "older-shape", "write perm: {paths: […]}", "perms is the documented name that Divingbell ignored; it is taken as perm")
	return conf.Without("perms").With("perm", normalPermList(perms))
}

func normalPermList(v *tree.Value) *tree.Value {
	if v.Kind != tree.Sequence {
		return v
	}
	return &tree.Value{Kind: tree.Mapping, At: v.At, Fields: []tree.Field{{Key: "paths", At: v.At, Val: v}}}
}

func (c *Checker) perm(v *tree.Value, f *Fragment) {
	d := shape.Read[permDoc](c.Checker, v)
	p := spec.Perm{Rerun: d.Rerun.S, IgnoreMissing: d.IgnoreMissing.On}
	if d.Rerun.Set() && !slices.Contains(rules.RerunPolicies, d.Rerun.S) {
		c.Errorf(d.Rerun.At, "enum", report.DidYouMean(d.Rerun.S, rules.RerunPolicies), "BAD 'rerun_policy' Got '%s'", d.Rerun.S)
		return
	}
	p.Interval = c.interval(d.Interval, "rerun_interval", "", d.Rerun.S == "" || d.Rerun.S == "always", "'rerun_policy' must be 'always'")
	inLayer, onNode := p, p
	inLayer.Rerun, inLayer.Interval = "", 0
	shape.Each(c.Checker, "paths", d.Paths, func(i int, e spec.PermPath) {
		for _, one := range c.permPaths(v.Get("paths").List[i], e) {
			if c.Layer && baked(one.Path) {
				inLayer.Paths = append(inLayer.Paths, one)
			} else {
				onNode.Paths = append(onNode.Paths, one)
			}
		}
	})
	if len(inLayer.Paths) > 0 {
		f.Recipe.Perm = &inLayer
	}
	if len(onNode.Paths) > 0 {
		f.Items.Perm = &onNode
	}
}

// permPaths is an entry as one path each.
func (c *Checker) permPaths(v *tree.Value, d spec.PermPath) []spec.PermPath {
	paths := []string{d.Path}
	if words := strings.Fields(d.Path); len(words) > 1 && !slices.ContainsFunc(words, func(w string) bool { return !path.IsAbs(w) }) {
		c.Warnf(c.At(v, "path"), "older-shape", "write one entry a path", "several paths in one entry")
		paths = words
	}
	mode, err := rules.ParseMode(d.Mode)
	c.Valid(c.At(v, "permissions"), err)
	if d.Mode == "" && d.Owner == "" && d.Group == "" {
		c.Warnf(c.At(v), "no-effect", "give owner, group or permissions", "nothing is asked for")
	}
	var out []spec.PermPath
	for _, p := range paths {
		if !c.Valid(cmp.Or(c.At(v, "path"), c.At(v)), rules.AuthoredPath(p)) {
			continue
		}
		clean := path.Clean(p)
		c.Refuse((clean == "/etc/shadow" || clean == "/etc/sudoers") && mode.Apply(0o640, false)&7 != 0, c.At(v, "permissions"), "dangerous",
			"0640 at most", "%s must not be readable by everyone", clean)
		entry := spec.PermPath{Path: clean, Owner: d.Owner, Group: d.Group, Mode: mode.String()}
		c.ValidIn(c.At(v), v, rules.PermPath(entry))
		out = append(out, entry)
	}
	return out
}
