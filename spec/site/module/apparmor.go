// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type appArmorDoc struct {
	Complain shape.Flag            `site:"complain_mode" doc:"load all profiles in complain mode"`
	Profiles shape.Map[profileDoc] `site:"profiles" doc:"profile text by file name, or {file: NAME} beside the site"`
}

var appArmorModule = Module{Name: "apparmor", Image: true, Doc: reflect.TypeFor[shape.Raw[appArmorDoc]](),
	About:   "AppArmor profiles, baked into the layer",
	Inline:  inlineProfiles,
	Compile: (*Checker).apparmor,
	Baked:   func(r *spec.Recipe) any { return r.AppArmor },
	NeedsLayer: func(r *spec.Recipe) []spec.NeedsLayer {
		return plain.Each(r.AppArmor.Profiles, func(p spec.Profile) spec.NeedsLayer {
			return spec.NeedsLayer{Item: "apparmor", Key: p.File, To: digest.Of([]byte(p.Text))}
		})
	},
	Flag: func(path []string) bool { return strings.Join(path, "/") == "complain_mode" },
}

// profileDoc is a profile's text, or the file that holds it.
type profileDoc struct{ shape.Block }

// Schema returns the schema of both forms.
func (*profileDoc) Schema(g *shape.Generator) any {
	type fileDoc struct {
		File shape.Text `site:"file,required" doc:"file beside the site that holds the profile"`
	}
	return map[string]any{"anyOf": []any{g.Of(reflect.TypeFor[shape.Text](), false), g.Of(reflect.TypeFor[fileDoc](), false)}}
}

// inlineProfiles replaces {file: NAME} by the profile that the file holds.
func inlineProfiles(c *shape.Checker, v *tree.Value, read reader) *tree.Value {
	return c.Below(v, "profiles", func(profiles *tree.Value) *tree.Value {
		return each(c, profiles, func(profile *tree.Value) *tree.Value {
			if name := profile.Get("file"); name != nil && name.Kind == tree.Scalar && len(profile.Fields) == 1 {
				c.In("file", func() { profile = content(name, read) })
			}
			return profile
		})
	})
}

// maxProfile bounds one profile file.
const maxProfile = 1 << 20

// profileHead finds where a profile begins: its name, after the word profile or
// as a path or quoted text, and its brace. The layer's apparmor_parser is the
// judge of the text; this only finds names that two files would fight over.
var profileHead = regexp.MustCompile(`(?m)^[ \t]*(?:profile[ \t]+("[^"\n]+"|[^\s{("]+)|("/[^"\n]+"|/[^\s{("]+))` +
	`[^\n{}#,;]*(?:flags[ \t]*=[ \t]*\([^)\n]*\))?[ \t]*\{`)

func (c *Checker) apparmor(v *tree.Value, f *Fragment) {
	if q := v.Get("complain_mode"); q != nil && q.Kind == tree.Scalar && !q.Plain && q.Text == "false" {
		c.In("complain_mode", func() {
			c.Warnf(q.At, "quoted-flag", "write false without quotes",
				"the text \"false\" turned complain mode on in Divingbell; here it means false")
		})
	}
	d := shape.Read[appArmorDoc](c.Checker, v)
	f.Recipe.AppArmor.Complain = d.Complain.On
	names := map[string]shape.Text{}
	c.Push("profiles")
	defer c.Pop()
	for _, e := range d.Profiles {
		c.In(e.Key.S, func() {
			if !c.Valid(e.Key.At, rules.ProfileFile(e.Key.S)) {
				return
			}
			if at := cmp.Or(e.Val.At, e.Key.At); strings.TrimSpace(e.Val.S) == "" {
				if !c.Failed(at) { // a file that cannot be read
					c.Errorf(at, "required", "", "the profile is empty")
				}
				return
			}
			c.Refuse(len(e.Val.S) > maxProfile, e.Val.At, "too-large", "", "a profile must be at most %d KiB", maxProfile>>10)
			if open, shut := strings.Count(e.Val.S, "{"), strings.Count(e.Val.S, "}"); open != shut &&
				!strings.Contains(e.Val.S, "#") && !strings.Contains(e.Val.S, `"`) {
				c.Errorf(e.Val.At, "profile", "", "the profile has %d opening and %d closing braces", open, shut)
			}
			for _, name := range ProfileNames(e.Val.S) {
				if first, dup := names[name]; dup && first.S != e.Key.S {
					c.Errorf(e.Key.At, "duplicate-profile", "two files of one profile overwrite each other in the kernel",
						"profile %s is defined by %s too, at %s", name, first.S, first.At)
					continue
				}
				names[name] = e.Key
			}
			f.Owns["/etc/apparmor.d/"+e.Key.S] = e.Key.At
			f.Recipe.AppArmor.Profiles = append(f.Recipe.AppArmor.Profiles, spec.Profile{File: e.Key.S, Text: e.Val.S})
		})
	}
	slices.SortFunc(f.Recipe.AppArmor.Profiles, func(a, b spec.Profile) int { return strings.Compare(a.File, b.File) })
}

// ProfileNames lists the top-level profiles of a text.
func ProfileNames(text string) []string {
	var out []string
	depth, last := 0, 0
	for _, m := range profileHead.FindAllStringSubmatchIndex(text, -1) {
		depth += strings.Count(text[last:m[0]], "{") - strings.Count(text[last:m[0]], "}")
		last = m[0]
		name := ""
		for _, g := range [][2]int{{m[2], m[3]}, {m[4], m[5]}} {
			if g[0] >= 0 {
				name = strings.Trim(text[g[0]:g[1]], `"`)
			}
		}
		if depth == 0 && name != "" {
			out = append(out, name)
		}
	}
	return out
}
