// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"errors"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// looksLikeGitopper: a list of services, each with its machine.
func looksLikeGitopper(text string) bool {
	return regexp.MustCompile(`(?m)^\s*\[\[\s*services\s*\]\]`).MatchString(text) &&
		regexp.MustCompile(`(?m)^\s*machine\s*=`).MatchString(text)
}

// operated is one entry of gitopper's services, with the lines that it was read from.
type operated struct {
	values map[string]string
	dirs   []any
	lines  map[string]*coverage.Item // by key
	at     int                       // line of its header
	why    string                    // none of it is taken
}

// gitopper is the file as far as it was read.
type gitopper struct {
	*reading
	global   map[string]string
	services []*operated
}

// readGitopper reads the configuration of gitopper(8): services of all machines, which
// take directories from git. Each becomes a NodeService, those of several machines that
// say the same one, and a NodeSet that names the machines.
func readGitopper(r *reading) {
	g := &gitopper{reading: r, global: map[string]string{}}
	p := &unstable.Parser{}
	p.Reset([]byte(r.Data))
	var at *operated // nil in [global]
	section := ""
	for p.NextExpression() {
		e := p.Expression()
		name, n := keyOf(p, e)
		switch e.Kind {
		case unstable.Table:
			section, at = name, nil
			if name != "global" {
				r.Miss(n, "["+name+"]", "it has no such table")
			}
		case unstable.ArrayTable:
			section, at = name, nil
			if name == "services" {
				at = &operated{values: map[string]string{}, lines: map[string]*coverage.Item{}, at: n}
				g.services = append(g.services, at)
			} else if name != "global.keys" {
				r.Miss(n, "[["+name+"]]", "it has no such list")
			}
		case unstable.KeyValue:
			line := strings.TrimSpace(strings.Split(r.Data, "\n")[n-1])
			switch {
			case section == "services":
				g.service(at, name, e.Value(), n, line)
			case section == "global":
				g.globally(name, e.Value(), n, line)
			case section == "global.keys":
				r.Miss(n, line, noKeys)
			default:
				r.Miss(n, line, "gitopper has no such key")
			}
		}
	}
	if err := p.Error(); err != nil {
		line := 1 + strings.Count(strings.TrimRight(r.Data, "\n"), "\n") // an end that comes too early
		if at, is := errors.AsType[*unstable.ParserError](err); is && len(at.Highlight) > 0 {
			line = p.Shape(p.Range(at.Highlight)).Start.Line
		}
		r.Broken = unended(r.Name, line, err)
		return
	}
	if n := len(g.services); n > 0 && len(g.services[n-1].lines) == 0 && len(g.services[n-1].dirs) == 0 {
		r.Broken = unended(r.Name, g.services[n-1].at, "the file ends in the middle of [[services]]")
		return
	}
	g.write()
}

// unended is the error for a file that cannot be read to its end.
func unended(name string, line int, why any) error {
	return report.Invalidf("is the file whole? gitopper would not start with it, either",
		"%s:%d: it cannot be read to its end: %v", name, line, why)
}

const noKeys = "nodes have no listener: publishing needs an operator's key"

// keyOf returns the dotted key of an expression and its line.
func keyOf(p *unstable.Parser, e *unstable.Node) (name string, line int) {
	var parts []string
	for it := e.Key(); it.Next(); {
		if line == 0 {
			line = p.Shape(it.Node().Raw).Start.Line
		}
		parts = append(parts, string(it.Node().Data))
	}
	return strings.Join(parts, "."), line
}

func (g *gitopper) globally(key string, v *unstable.Node, n int, line string) {
	switch key {
	case "upstream", "branch":
		g.global[key] = string(v.Data)
		g.Item(n, line).Taken = true
		g.Items[len(g.Items)-1].As = "git of each NodeService"
	case "mount":
		g.Miss(n, line, noMount)
	case "keys":
		g.Miss(n, line, noKeys)
	default:
		g.Miss(n, line, "gitopper does not have it in [global]")
	}
}

const noMount = "images are mounted below /run/caisson/service"

func (g *gitopper) service(at *operated, key string, v *unstable.Node, n int, line string) {
	switch key {
	case "machine", "service", "upstream", "branch", "user", "package", "action":
		if v.Kind != unstable.String {
			g.Miss(n, line, "it is not text")
			return
		}
		at.values[key] = string(v.Data)
		at.lines[key] = g.Item(n, line)
	case "dirs":
		if v.Kind != unstable.Array {
			g.Miss(n, line, "it is not a list of directories")
			return
		}
		at.lines[key] = g.Item(n, line)
		for it := v.Children(); it.Next(); {
			if it.Node().Kind == unstable.InlineTable {
				g.directory(at, it.Node(), n, line)
			}
		}
	case "mount":
		g.Miss(n, line, noMount)
	default:
		g.Miss(n, line, "gitopper has no such key")
	}
}

func (g *gitopper) directory(at *operated, dir *unstable.Node, n int, line string) {
	values := map[string]string{}
	for it := dir.Children(); it.Next(); {
		var key string
		for k := it.Node().Key(); k.Next(); {
			key = string(k.Node().Data)
		}
		values[key] = string(it.Node().Value().Data)
	}
	if values["local"] == "" {
		g.Miss(n, line, "the directory "+values["link"]+
			" has no local: nodes have no checkout to read it from; write the path where the service looks for it")
		return
	}
	d := map[string]any{"from": path.Clean(strings.TrimPrefix(values["link"], "/")), "to": path.Clean(values["local"])}
	if values["file"] == "true" {
		d["file"] = true
	}
	at.dirs = append(at.dirs, d)
}

// scp is the form of a repository's address that ssh has of its own.
var scp = regexp.MustCompile(`^([^/@:]+@[^/:]+):([^/].*)$`)

// document is the NodeService that an entry becomes, without its nodes.
func (g *gitopper) document(s *operated) map[string]any {
	url := cmp.Or(s.values["upstream"], g.global["upstream"])
	if m := scp.FindStringSubmatch(url); m != nil {
		url = "ssh://" + m[1] + "/" + m[2]
	}
	doc := map[string]any{"unit": s.values["service"], "directories": s.dirs,
		"git": map[string]any{"url": url, "branch": cmp.Or(s.values["branch"], g.global["branch"], "main")}}
	for _, key := range []string{"user", "package", "action"} {
		if s.values[key] != "" {
			doc[key] = s.values[key]
		}
	}
	return doc
}

// group holds the values that several machines have alike.
type group struct {
	name     string
	text     string // its NodeService, to compare
	doc      map[string]any
	machines []any
	of       []*operated
}

// write makes documents of what was read.
func (g *gitopper) write() {
	var groups []*group
	names := map[string]bool{}
	for _, s := range g.services {
		doc := g.document(s)
		text, err := coverage.YAML(doc)
		if err != nil {
			s.why = err.Error()
			continue
		}
		switch {
		case s.values["service"] == "gitopper":
			s.why = "the agent comes with the layer, and its configuration with each publish"
		case s.values["machine"] == "":
			s.why = "it names no machine"
		case len(s.dirs) == 0:
			s.why = "it installs nothing on the machine"
		case rules.ID(s.values["service"]) != nil:
			s.why = rules.ID(s.values["service"]).Error()
		}
		if s.why != "" {
			continue
		}
		i := slices.IndexFunc(groups, func(o *group) bool { return o.text == string(text) })
		if i < 0 {
			name := s.values["service"]
			for n := 2; names[name]; n++ {
				name = s.values["service"] + "-" + strconv.Itoa(n)
			}
			names[name] = true
			i, groups = len(groups), append(groups, &group{name: name, text: string(text), doc: doc})
		}
		groups[i].machines = append(groups[i].machines, s.values["machine"])
		groups[i].of = append(groups[i].of, s)
	}
	for _, one := range groups {
		g.finish(one)
	}
	for _, s := range g.services {
		for _, l := range s.lines {
			if s.why != "" {
				l.Why = s.why
			}
		}
	}
}

// finish adds a group's documents, unless a site would refuse them.
func (g *gitopper) finish(one *group) {
	one.doc["nodes"] = []any{one.name}
	docs := []any{document[maintenance.NodeSetDoc](one.name,
		map[string]any{"match": map[string]any{"hosts": one.machines}}), document[service.ServiceDoc](one.name, one.doc)}
	why := coverage.RefusedDocuments(docs)
	for _, s := range one.of {
		s.why = why
		for key, l := range s.lines {
			if l.Taken = why == ""; l.Taken {
				l.As = "NodeService " + one.name + ", " + map[string]string{"machine": "nodes", "service": "unit",
					"upstream": "git.url", "branch": "git.branch", "dirs": "directories"}[key]
				if strings.HasSuffix(l.As, ", ") {
					l.As += key
				}
			}
		}
	}
	if why == "" {
		g.Documents = append(g.Documents, docs...)
	}
}

func document[Doc any](name string, spec map[string]any) map[string]any {
	return map[string]any{"apiVersion": "caisson.dev/v1alpha1", "kind": shape.Kind[Doc](),
		"metadata": map[string]any{"name": name}, "spec": spec}
}
