// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type permDoc struct {
	Paths         []permPathDoc `site:"paths"`
	Rerun         shape.Text    `site:"rerun_policy" doc:"always (when absent), never or once_successfully"`
	Interval      shape.Text    `site:"rerun_interval" doc:"seconds, at least 60, or infinity"`
	IgnoreMissing shape.Flag    `site:"ignore_missing"`
}

type permPathDoc struct {
	Path  shape.Text `site:"path,required" doc:"absolute path or pattern"`
	Owner shape.Text `site:"owner"`
	Group shape.Text `site:"group"`
	Mode  shape.Text `site:"permissions" doc:"octal, or as in chmod(1)"`
	At    report.Pos
}

// permShape is perm in its own shape or, as older sites have it, a bare list.
type permShape struct{ permDoc }

func (*permShape) Schema(g *shape.Generator) any {
	return map[string]any{"anyOf": []any{g.Of(reflect.TypeFor[permDoc](), false), g.Of(reflect.TypeFor[[]permPathDoc](), false)}}
}

var (
	octalMode    = regexp.MustCompile(`^[0-7]{3,5}$`)
	symbolicMode = regexp.MustCompile(`^[ugoa]*[-+=][rwxXst]*(,[ugoa]*[-+=][rwxXst]*)*$`)
	ownerText    = regexp.MustCompile(`^([0-9]{1,10}|[a-z_A-Z][A-Za-z0-9_.-]{0,31}\$?)$`)
)

// bakedDirs hold what the layer brings; everything else of a node is its own.
var bakedDirs = []string{"/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr"}

// baked says whether a path or pattern lies in the layer: its first component,
// taken literally, is one of the layer's. What cannot be told is the node's.
func baked(p string) bool {
	for _, d := range bakedDirs {
		if p == d || strings.HasPrefix(p, d+"/") {
			return true
		}
	}
	return false
}

// normalPerm makes the older bare list a map.
func normalPerm(c *shape.Checker, v *tree.Value) *tree.Value {
	if v.Kind != tree.Sequence {
		return v
	}
	c.Warnf(v.At, "older-shape", "put the list below perm.paths", "perm as a bare list is an older shape")
	return &tree.Value{Kind: tree.Mapping, At: v.At, Fields: []tree.Field{{Key: "paths", At: v.At, Val: v}}}
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
	var d permDoc
	c.Decode(v, &d)
	p := spec.Perm{Rerun: d.Rerun.S, IgnoreMissing: d.IgnoreMissing.On}
	if d.Rerun.Set() && !slices.Contains(rerunPolicies, d.Rerun.S) {
		c.Errorf(d.Rerun.At, "enum", report.DidYouMean(d.Rerun.S, rerunPolicies), "BAD 'rerun_policy' Got '%s'", d.Rerun.S)
		return
	}
	p.Interval = c.interval(d.Interval, "rerun_interval", "", d.Rerun.S == "" || d.Rerun.S == "always", "'rerun_policy' must be 'always'")
	inLayer, onNode := p, p
	inLayer.Rerun, inLayer.Interval = "", 0
	for i, e := range d.Paths {
		c.Within([]string{"paths", shape.Nth(i)}, func() {
			for _, one := range c.permPaths(e) {
				if c.Layer && baked(one.Path) {
					inLayer.Paths = append(inLayer.Paths, one)
				} else {
					onNode.Paths = append(onNode.Paths, one)
				}
			}
		})
	}
	if len(inLayer.Paths) > 0 {
		f.Baked = &inLayer
	}
	if len(onNode.Paths) > 0 {
		f.Items.Perm = &onNode
	}
}

// permPaths is an entry as one path each.
func (c *Checker) permPaths(d permPathDoc) []spec.PermPath {
	paths := []string{d.Path.S}
	if words := strings.Fields(d.Path.S); len(words) > 1 && allAbsolute(words) {
		c.Warnf(d.Path.At, "older-shape", "write one entry a path", "several paths in one entry")
		paths = words
	}
	mode := d.Mode.S
	switch {
	case octalMode.MatchString(mode):
		mode = "0" + strings.TrimLeft(mode, "0")
		for len(mode) < 4 {
			mode = "0" + mode
		}
		if len(mode) > 5 {
			c.Errorf(d.Mode.At, "mode", "", "%q has too many digits", d.Mode.S)
		}
	case mode != "" && !symbolicMode.MatchString(mode):
		c.Errorf(d.Mode.At, "mode", "as in 0640 or u=rw,g=r,o=", "%q is not a mode", mode)
	}
	for _, t := range []shape.Text{d.Owner, d.Group} {
		if t.S != "" && !ownerText.MatchString(t.S) {
			c.Errorf(t.At, "owner", "a name or a number", "%q is neither a name nor an id", t.S)
		}
	}
	if mode == "" && d.Owner.S == "" && d.Group.S == "" {
		c.Warnf(d.At, "no-effect", "give owner, group or permissions", "nothing is asked for")
	}
	var out []spec.PermPath
	for _, p := range paths {
		if !path.IsAbs(p) || slices.Contains(strings.Split(p, "/"), "..") || strings.ContainsAny(p, "\n\r") {
			c.Errorf(cmp.Or(d.Path.At, d.At), "path", "", "%q is not an absolute path without ..", p)
			continue
		}
		if _, err := path.Match(p, ""); err != nil {
			c.Errorf(d.Path.At, "path", "", "%q is not a pattern", p)
		}
		clean := path.Clean(p)
		if (clean == "/etc/shadow" || clean == "/etc/sudoers") && looseMode(mode) {
			c.Errorf(d.Mode.At, "dangerous", "0640 at most", "%s must not be readable by everyone", clean)
		}
		out = append(out, spec.PermPath{Path: clean, Owner: d.Owner.S, Group: d.Group.S, Mode: mode})
	}
	return out
}

func allAbsolute(words []string) bool {
	for _, w := range words {
		if !path.IsAbs(w) {
			return false
		}
	}
	return true
}

func looseMode(mode string) bool {
	return octalMode.MatchString(mode) && mode[len(mode)-1] != '0'
}
