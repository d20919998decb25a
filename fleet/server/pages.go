// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// page holds what there is to say of a page beside its text, which is a template.
type page struct {
	Path  string // "/" is the first one
	Title string
	Main  bool // it stands in the head of all pages
	role  people.Role
	text  string // file below page
	data  func(*Server, *http.Request) (status int, data any, err error)
}

// allPages is the one table of pages: routes, titles and the head of every page follow
// from it.
var allPages = []page{
	{"/", "Overview", true, people.Reader, "overview.html", (*Server).overviewPage},
	{"/nodes", "Nodes", true, people.Reader, "nodes.html", func(s *Server, req *http.Request) (int, any, error) {
		return nodeList{&s.o.Fleet, s.asReader(req), s.publishes}.page(req)
	}},
	{"/nodes/{node}", "", false, people.Reader, "node.html", (*Server).nodePage}, // its title is the node's name
	{"/layers", "Layers", true, people.Reader, "layers.html", func(s *Server, req *http.Request) (int, any, error) {
		return http.StatusOK, map[string]any{"In": s.layers(req.Context()), "Registry": s.o.Registry}, nil
	}},
	{"/generations", "Generations", true, people.Reader, "generations.html", func(s *Server, req *http.Request) (int, any, error) {
		g := generations{s.o.Past, s.looks}
		return g.page(req, g.list)
	}},
	{"/generations/{range}", "", false, people.Reader, "generation.html", func(s *Server, req *http.Request) (int, any, error) {
		g := generations{s.o.Past, s.looks}
		return g.page(req, g.one)
	}}, // its title is the range
	{"/services", "Services", true, people.Reader, "services.html",
		func(s *Server, _ *http.Request) (int, any, error) { return http.StatusOK, s.o.Services(), nil }},
	{"/rollouts", "Rollouts", true, people.Reader, "rollouts.html", (*Server).rolloutsPage},
	{"/windows", "Windows", true, people.Reader, "windows.html",
		func(s *Server, _ *http.Request) (int, any, error) { return http.StatusOK, s.o.Agenda(), nil }},
	{"/slots", "Slots", true, people.Reader, "slots.html", func(s *Server, req *http.Request) (int, any, error) {
		return http.StatusOK, map[string]any{"Groups": s.o.Hub.Slots(), "As": s.asOperator(req)}, nil
	}},
	{"/unknown", "Unknown machines", true, people.Reader, "unknown.html", (*Server).unknownPage},
	{"/replace/{node}", "", false, people.Reader, "replace.html", (*Server).replacePage}, // its title is the node's name
	{"/audit", "Audit log", true, people.Reader, "audit.html",
		func(s *Server, req *http.Request) (int, any, error) { return auditLog{s.o.Hub, &s.chain}.page(req) }},
	login,
}

var login = page{"/login", "Log in", false, people.Nobody, "login.html", func(s *Server, req *http.Request) (int, any, error) {
	return http.StatusOK, s.loginForm(req.URL.Query().Get("to"), ""), nil
}}

// pattern is the page's path for [http.ServeMux].
func (p page) pattern() string {
	if p.Path == "/" {
		return "/{$}"
	}
	return p.Path
}

// Here reports whether the page, or one below it, is at a path.
func (p page) Here(path string) bool {
	return path == p.Path || p.Path != "/" && strings.HasPrefix(path, p.Path+"/")
}

// page answers with a page.
func (s *Server) page(p page) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		p := p // requests share the row
		status, data, err := p.data(s, req)
		if p.Title == "" {
			p.Title = plain.Line(cmp.Or(req.PathValue("node"), req.PathValue("range")))
		}
		switch {
		case errors.Is(err, hub.ErrNoNode):
			s.show(w, req, http.StatusNotFound, page{Title: p.Title, text: "missing.html"}, req.PathValue("node"))
		case err != nil:
			s.failed(w, err)
		default:
			s.show(w, req, status, p, data)
		}
	}
}

// frame holds what every page has.
type frame struct {
	Title string
	Path  string
	Pages []page
	Fleet hub.Fleet
	Site  string // why it is not as its files are
	Inbox string // why not everything there could be read
	Now   time.Time
	Who   people.Caller
	Open  bool // there are no tokens
	Data  any
}

// words are the functions of the templates.
func (s *Server) words() template.FuncMap {
	return template.FuncMap{
		"ago": func(t time.Time) string { return ago(s.o.Hub.Now().Sub(t)) },
		"utc": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"iso": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"short": func(of string) string {
			digits := digest.Hex(of)
			return digits[:min(12, len(digits))]
		},
		"digest": oci.ValidDigest,                                               // what a node says goes into a command for a shell only as one
		"text":   func(said any) string { return plain.Line(fmt.Sprint(said)) }, // a node may say signs that turn a line around
		"count":  thousands,
		"brief":  brief,
		"keep":   query.Keep,
		"kind":   view.KindOf,
		"over":   func(until int64) bool { return spec.Hold{Until: until}.Over(s.o.Hub.Now()) },
		"unix":   func(seconds int64) time.Time { return time.Unix(seconds, 0) },
		"share": func(part, whole int) string {
			return strconv.FormatFloat(1000*float64(part)/float64(max(1, whole)), 'f', 3, 64)
		},
	}
}

// ago says how long something is over, in one unit.
func ago(d time.Duration) string {
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}} {
		if d >= 2*u.of {
			return fmt.Sprintf("%d %s ago", d/u.of, u.name)
		}
	}
	switch {
	case d < -time.Minute:
		return "in " + strings.TrimSuffix(ago(-d), " ago")
	case d < 0:
		return "now"
	}
	return fmt.Sprintf("%d s ago", d/time.Second)
}

func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// show writes a page, whole or not at all.
func (s *Server) show(w http.ResponseWriter, req *http.Request, status int, p page, data any) {
	f := frame{Title: p.Title, Path: req.URL.Path, Pages: allPages, Fleet: s.o.Hub.Fleet(),
		Site: query.TroubleWith(s.o.Site), Inbox: query.TroubleWith(s.o.Inbox), Now: s.o.Hub.Now(), Who: callerOf(req),
		Open: s.o.Tokens == nil, Data: data}
	var b bytes.Buffer
	if err := s.pages.ExecuteTemplate(&b, p.text, f); err != nil {
		s.o.Say("page %s: %v", p.text, err)
		s.fail(w, http.StatusInternalServerError, "page", "the page could not be made, and the service's log says why")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client is gone
}

var wholeDigest = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// brief is a value as a cell of a table has it: a digest by its beginning.
func brief(value string) string {
	return plain.Line(wholeDigest.ReplaceAllStringFunc(strings.ReplaceAll(value, "\t", " "),
		func(of string) string { return of[:len(of)-64+12] + "…" }))
}

// keeps reports whether some drift of a node can be kept by a line of the site.
func keeps(r *spec.Report) bool {
	return r != nil && slices.ContainsFunc(r.Drift, func(d spec.Drift) bool { return query.Keep(d) != "" })
}

// tile is one condition on the overview.
type tile struct {
	view.Kind
	Nodes int
	From  float64 // of the bar, in thousandths
	Width float64
}

func (s *Server) overviewPage(*http.Request) (int, any, error) {
	sum := s.o.Summary()
	var tiles []tile
	at := 0.0
	for _, k := range view.Kinds {
		if n := sum.Conditions[k.Condition]; n > 0 {
			width := 1000 * float64(n) / float64(max(1, sum.Nodes))
			tiles = append(tiles, tile{k, n, at, width})
			at += width
		}
	}
	return http.StatusOK, map[string]any{"Summary": sum, "Tiles": tiles}, nil
}

// act is something that an operator may want to do, and the command that does it: it
// takes a key, which no service has.
type act struct{ Says, Command string }

// actsOn are the publishes that fit a node: what ends its holds, and those that it has
// not. A node has one pause at most, and one other hold.
func actsOn(published bool, holds []string, on func(verb, more string) string) (acts []act) {
	if !published {
		return []act{{"Remove it from the registry, where the machine is gone for good", on("retire", "")}}
	}
	paused := slices.Contains(holds, spec.HoldPause)
	if len(holds) > 1 || len(holds) == 1 && !paused {
		acts = append(acts, act{"Let it follow the site again", on("forward", "")})
	} else {
		acts = append(acts, act{"Go back to what it had before", on("rollback", ` --reason "…"`)},
			act{"Keep what it has", on("freeze", ` --reason "…"`)})
	}
	if paused {
		return append(acts, act{"Enforce again", on("resume", "")})
	}
	return append(acts, act{"Stop enforcing, and keep checking", on("pause", ` --reason "…"`)})
}

func (s *Server) nodePage(req *http.Request) (int, any, error) {
	d, err := s.o.Node(req.Context(), req.PathValue("node"))
	if err != nil {
		return 0, nil, err
	}
	on := func(verb, more string) string {
		return s.publishes(verb, " --node "+d.Name+more)
	}
	acts := []act{{"Show what is wrong, and what to do about it", "ssh " + d.Name + " sudo caisson-agent why"},
		{"Show all of its present state", "ssh " + d.Name + " sudo caisson-agent status"},
		{"List what it was given, when and by whom", s.looks("history", " --node "+d.Name)}}
	if d.Offered != nil {
		acts = append(acts, act{"Accept its other key, when caisson-agent report on the node prints it",
			"caisson fleet accept " + d.Name + " " + d.Offered.Report.Key + s.asOperator(req)})
	}
	if r := d.Report; r != nil && r.Grade == spec.KeyPinned && d.Grade == spec.KeyBoot {
		acts = append(acts, act{"Pin its key, when caisson-agent report on the node prints it", "caisson fleet accept " +
			d.Name + " " + d.Key + s.asOperator(req)})
	}
	if m := d.Machine; m != nil {
		acts = append(acts, act{"Accept what its TPM shows, when caisson-agent quote on the node prints key " + m.Key,
			"caisson fleet accept " + d.Name + " " + m.ID + s.asOperator(req)})
	}
	acts = append(acts, actsOn(d.Published != nil, d.Holds, on)...)
	for _, l := range d.Slots {
		acts = append(acts, act{"Release its slot of " + l.Group,
			fmt.Sprintf(`caisson fleet slots release %s %s --reason "…"`, l.Group, d.Name) + s.asOperator(req)})
	}
	return http.StatusOK, map[string]any{"Node": d, "Acts": acts, "Boot": chart(d.Report), "Kept": keeps(d.Report)}, nil
}

// noPage answers for an address that was mistyped, or is of another release.
func (s *Server) noPage(w http.ResponseWriter, req *http.Request) {
	if !wantsPage(req) {
		s.fail(w, http.StatusNotFound, "no-page", "there is nothing at this address; /openapi.json describes what there is")
		return
	}
	s.show(w, req, http.StatusNotFound, page{Title: "No such page", text: "nowhere.html"}, nil)
}

// Slots holds what GET /v1/slots answers.
type Slots struct {
	Groups []hub.Group `json:"groups"`
}

// Write prints who holds slots.
func (s Slots) Write(w io.Writer) {
	for _, g := range s.Groups {
		cli.Printf(w, "%s: %d of %d\n", g.Name, len(g.Held), g.Max)
		for _, l := range g.Held {
			waits := ""
			if l.Draining {
				waits = ", being drained"
			}
			cli.Printf(w, "  %s since %s%s\n", l.Node, l.Since.Format(time.RFC3339), waits)
		}
	}
}

// loginForm is the content of the page for logging in, and why somebody is not logged in.
func (s *Server) loginForm(to, why string) map[string]any {
	form := map[string]any{"To": local(to), "Why": why, "Provider": ""}
	if s.o.People != nil {
		form["Provider"] = s.o.People.Provider.Host()
	}
	return form
}

// looks is a command that reads what is published.
func (s *Server) looks(verb, more string) string {
	return fmt.Sprintf("caisson %s %s %s%s", verb, s.o.Registry, s.o.Names().Verifies, more)
}

// publishes is a command that signs.
func (s *Server) publishes(verb, more string) string {
	return s.looks(verb, more) + " " + s.o.Names().Signs
}

// at is the address of this service within a command. The guards let no name through
// that is not this service's; how a proxy was reached is not for its headers to say.
func (s *Server) at(req *http.Request) string {
	at := s.o.URL
	switch {
	case at != "":
	case s.o.TLS:
		at = "https://" + req.Host
	default:
		at = "http://" + req.Host
	}
	if strings.Contains(at, "[") {
		at = `"` + at + `"` // some shells look for files
	}
	return at
}

// asReader ends a command that asks this service.
func (s *Server) asReader(req *http.Request) string {
	if s.o.Tokens == nil {
		return " --at " + s.at(req)
	}
	return s.asOperator(req)
}

// asOperator ends a command that asks this service for what takes an operator.
func (s *Server) asOperator(req *http.Request) string {
	return " --at " + s.at(req) + " --token-file token"
}

// strangers returns the machines that asked in vain, those that asked last first.
func (s *Server) strangers() unknown.Answer {
	u := unknown.Answer{Known: s.o.Unknown != nil, Machines: []unknown.Machine{}}
	if !u.Known {
		return u
	}
	list, err := s.o.Unknown()
	if err != nil {
		u.Trouble = problemOf("unknown", err).Value
	}
	u.Machines = append(u.Machines, list...)
	return u
}

// mostFit is how many machines the page of a replacement offers.
const mostFit = 20

// fitting is a machine that may come in a node's place, with the command that has it come.
type fitting struct {
	unknown.Machine
	Command string
}

// replacePage shows what may come in the place of a node's machine, and what that has still.
func (s *Server) replacePage(req *http.Request) (int, any, error) {
	n, err := s.o.Node(req.Context(), req.PathValue("node"))
	if err != nil {
		return 0, nil, err
	}
	verb := "caisson fleet replace " + cmp.Or(s.o.Names().Site, "site.yaml") + " " + n.Name
	u := s.strangers()
	list := unknown.For(u.Machines, n.Name)
	fit := plain.Each(list[:min(len(list), mostFit)], func(m unknown.Machine) fitting {
		return fitting{m, verb + " --machine " + m.ID() + s.asReader(req)}
	})
	still := n.Still(s.o.Hub.Rollouts(), query.Commands{Looks: s.looks, Publishes: s.publishes, Service: s.asOperator(req)})
	return http.StatusOK, map[string]any{"Node": n, "Unknown": u, "Fit": fit, "Still": still, "Look": verb +
		" --dry-run" + s.asReader(req)}, nil
}

// unknownPage lists machines that asked for an overlay and have none, each with a row for the
// inventory. What they say of themselves is not proven.
func (s *Server) unknownPage(*http.Request) (int, any, error) {
	data := map[string]any{"On": s.o.Unknown != nil}
	if s.o.Unknown == nil {
		return http.StatusOK, data, nil
	}
	list, err := s.o.Unknown()
	if err != nil {
		data["Wrong"] = problemOf("unknown", err)
		return http.StatusOK, data, nil
	}
	rows := unknown.Rows(list)
	all := plain.Each(rows, func(r unknown.Row) string { return r.Node })
	data["Machines"], data["All"] = rows, strings.Join(all, "\n")
	return http.StatusOK, data, nil
}
