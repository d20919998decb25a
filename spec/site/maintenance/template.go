// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"embed"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// TemplateDoc is an OperationTemplate as it is written.
type TemplateDoc struct {
	HeadDoc
	Kind shape.Text      `site:"kind,required" enum:"OperationTemplate"`
	Spec templateSpecDoc `site:"spec,required"`
}

type templateSpecDoc struct {
	Version    shape.Text              `site:"version,required" doc:"version of the template, which users name; a changed one needs another"`
	About      shape.Text              `site:"about" doc:"what the operation does, in a line"`
	Parameters shape.Map[parameterDoc] `site:"parameters"`
	Operation  shape.Raw[bodyDoc]      `site:"operation,required" doc:"an operation without name and windows; ${NAME} in it is a parameter"`
}

type parameterDoc struct {
	Default shape.Text `site:"default" doc:"value where none is given; a parameter without a default must be given"`
	Doc     shape.Text `site:"doc" doc:"what the parameter is, in a line"`
}

// bodyDoc holds the fields that an operation may take from a template.
type bodyDoc struct {
	Type       shape.Text            `site:"type" enum:"cron,oneShot,realtime"`
	Exec       *patternDoc           `site:"exec"`
	Check      *patternDoc           `site:"check"`
	Disruptive shape.Text            `site:"disruptive"`
	Reboots    shape.Text            `site:"reboots"`
	Schedule   *calendar.ScheduleDoc `site:"schedule"`
	Retry      *retryDoc             `site:"retry"`
	Outside    shape.Text            `site:"outsideWindow" enum:"enforce,report"`

	Conf confDoc `site:"conf"`
}

// patternDoc is a command of a template: its timeout may be a parameter.
type patternDoc struct {
	Argv    []shape.Block `site:"argv,required"`
	Timeout shape.Text    `site:"timeout,required"`
}

// useDoc names a template.
type useDoc struct {
	Name    shape.Text `site:"name,required" doc:"name of an OperationTemplate, or of one that comes with caisson"`
	Version shape.Text `site:"version,required"`
	At      report.Pos
}

// template is an OperationTemplate.
type template struct {
	name, version string
	defaults      map[string]*tree.Value // by parameter; nil without a default
	body          *tree.Value
	digest        string
	at            report.Pos
	shipped       bool // with caisson: nobody has its file
}

func (t *template) String() string { return t.name + "@" + t.version }

// placeholder is where the value of a parameter goes. Variables of a shell in braces
// have another form only where they are no more than a name.
var placeholder = regexp.MustCompile(`\$\{[a-z][a-zA-Z0-9]*\}`)

// readTemplate checks a template. What it makes of an operation is checked where it
// is used.
func readTemplate(c *shape.Checker, v *tree.Value) *template {
	doc := shape.Read[TemplateDoc](c, v)
	if !doc.Metadata.Name.Set() || !doc.Spec.Version.Set() || doc.Spec.Operation.V == nil {
		return nil // said already
	}
	t := &template{name: doc.Metadata.Name.S, version: doc.Spec.Version.S, defaults: map[string]*tree.Value{},
		body: doc.Spec.Operation.V, at: doc.Metadata.Name.At,
		digest: digest.Of(v.AppendText(nil))}
	c.In(t.name, func() {
		c.Refuse(strings.ContainsAny(t.version, "@ \t\n") || t.version == "", doc.Spec.Version.At, "template", "as in \"1\"",
			"%q is not a version", t.version)
		for _, p := range doc.Spec.Parameters {
			c.Refuse(!placeholder.MatchString("${"+p.Key.S+"}"), p.Key.At, "template", "a letter, then letters and digits",
				"%q is not the name of a parameter", p.Key.S)
			t.defaults[p.Key.S] = nil
			if p.Val.Default.Set() {
				t.defaults[p.Key.S] = &tree.Value{Kind: tree.Scalar, Text: p.Val.Default.S, At: p.Val.Default.At}
			}
		}
		if !c.Want(t.body, tree.Mapping) {
			return
		}
		for _, f := range t.body.Fields {
			if !slices.Contains(bodyFields, f.Key) {
				c.Unknown(f, bodyFields)
			}
		}
		t.fill(t.body, nil, func(at report.Pos, name string) {
			if _, known := t.defaults[name]; !known {
				c.Errorf(at, "template", report.DidYouMean(name, slices.Sorted(maps.Keys(t.defaults))), "%s has no parameter %q", t, name)
			}
		})
	})
	return t
}

var bodyFields = []string{"type", "exec", "check", "disruptive", "reboots", "schedule", "retry", "outsideWindow", "conf"}

// fill returns the body with values in the places of parameters. Each place is shown
// to see.
func (t *template) fill(v *tree.Value, values map[string]*tree.Value, see func(at report.Pos, name string)) *tree.Value {
	return v.Map(func(v *tree.Value) {
		at := v.At
		v.Text = placeholder.ReplaceAllStringFunc(v.Text, func(place string) string {
			name := place[2 : len(place)-1]
			see(at, name)
			if value := values[name]; value != nil {
				if t.shipped {
					v.At = value.At
				}
				return value.Text
			}
			return place
		})
	})
}

// shipped are the templates that come with caisson.
//
//go:embed templates
var shipped embed.FS

var standard = sync.OnceValue(func() []*template {
	files, err := shipped.ReadDir("templates")
	if err != nil {
		panic(err) // they are part of the program
	}
	var out []*template
	for _, f := range files {
		data, err := shipped.ReadFile("templates/" + f.Name())
		if err != nil {
			panic(err)
		}
		var r report.Report
		src := &report.Source{Name: f.Name(), Data: data}
		for _, v := range tree.Parse(src, data, &r) {
			t := readTemplate(&shape.Checker{Report: &r}, v)
			t.shipped = true
			out = append(out, t)
		}
		if err := r.Err(); err != nil {
			panic(err) // a test reads all of them
		}
	}
	return out
})

// templates are those that a site may use.
type templates []*template

// add takes a template of the site.
func (all *templates) add(c *shape.Checker, t *template) {
	for _, other := range append(slices.Clone(*all), standard()...) {
		if other.String() == t.String() {
			where := "by caisson"
			if other.at.Src != t.at.Src || slices.Contains(*all, other) {
				where = "at " + other.at.String()
			}
			c.Errorf(t.at, "duplicate-name", "", "the OperationTemplate %s is given already, %s", t, where)
			return
		}
	}
	*all = append(*all, t)
}

// expand returns an operation without its template: the template's fields, with those
// that stand beside it over them, and where they come from.
func (all templates) expand(c *shape.Checker, v *tree.Value) (whole *tree.Value, from string) {
	use := v.Get("template")
	if use == nil || use.Kind == tree.Null {
		if with := v.Get("with"); with != nil {
			c.Errorf(with.At, "template", "name a template", "parameters have no meaning here")
		}
		return v.Without("with"), ""
	}
	rest := v.Without("template").Without("with")
	var named useDoc
	c.In("template", func() { c.Decode(use, &named) })
	if !named.Name.Set() || !named.Version.Set() {
		return nil, ""
	}
	known := append(slices.Clone(standard()), all...)
	i := slices.IndexFunc(known, func(t *template) bool { return t.name == named.Name.S && t.version == named.Version.S })
	if i < 0 {
		names := plain.Each(known, (*template).String)
		wanted := named.Name.S + "@" + named.Version.S
		c.Errorf(use.At, "unknown-name", report.DidYouMean(wanted, names), "there is no OperationTemplate %s", wanted)
		return nil, ""
	}
	t := known[i]
	values := maps.Clone(t.defaults)
	if with := v.Get("with"); with != nil && c.Want(with, tree.Mapping) {
		for _, f := range with.Fields {
			if _, is := values[f.Key]; !is {
				c.Errorf(f.At, "template", report.DidYouMean(f.Key, slices.Sorted(maps.Keys(values))), "%s has no parameter %q", t, f.Key)
			} else if c.Want(f.Val, tree.Scalar) {
				values[f.Key] = f.Val
			}
		}
	}
	missing := false
	body := t.fill(t.body, values, func(_ report.Pos, name string) {
		if values[name] == nil && !missing {
			missing = true
			c.Errorf(use.At, "template", "with: {"+name+": …}", "%s needs the parameter %q", t, name)
		}
	})
	if missing {
		return nil, ""
	}
	if t.shipped { // its parts are where it is used
		body = body.Map(func(v *tree.Value) {
			if v.At.Src == t.at.Src {
				v.At = use.At
			}
			for i, f := range v.Fields {
				if f.At.Src == t.at.Src {
					v.Fields[i].At = use.At
				}
			}
		})
	}
	lost := func(v *tree.Value) { c.Errorf(v.At, "type", "", "%s has something else here", t) }
	return tree.MergeOverride(body, rest, lost), t.String() + "@" + t.digest
}
