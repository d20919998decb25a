// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/internal/plain"
)

// page holds what there is to say of a page beside its text, which is a template.
type page struct {
	Path  string // "/" is the first one
	Title string
	Main  bool // it stands in the head of all pages
	role  Role
	text  string // file below page
	data  func(*Server, *http.Request) (status int, data any, err error)
}

// allPages is the one table of pages: routes, titles and the head of every page follow
// from it.
var allPages = []page{
	{"/", "Overview", true, Reader, "overview.html", (*Server).overviewPage},
	{"/nodes", "Nodes", true, Reader, "nodes.html", func(s *Server, req *http.Request) (int, any, error) {
		return nodeList{s.fleet(), s.asReader(req), s.publishes}.page(req)
	}},
	{"/nodes/{node}", "", false, Reader, "node.html", (*Server).nodePage}, // its title is the node's name
	{"/layers", "Layers", true, Reader, "layers.html", func(s *Server, req *http.Request) (int, any, error) {
		return http.StatusOK, map[string]any{"In": s.layers(req.Context()), "Registry": s.o.Registry}, nil
	}},
	{"/generations", "Generations", true, Reader, "generations.html", func(s *Server, req *http.Request) (int, any, error) {
		return generations{s.o.Past, s.looks}.list(req)
	}},
	{"/generations/{range}", "", false, Reader, "generation.html", func(s *Server, req *http.Request) (int, any, error) {
		return generations{s.o.Past, s.looks}.one(req)
	}}, // its title is the range
	{"/services", "Services", true, Reader, "services.html",
		func(s *Server, _ *http.Request) (int, any, error) { return http.StatusOK, s.fleet().Services(), nil }},
	{"/rollouts", "Rollouts", true, Reader, "rollouts.html", (*Server).rolloutsPage},
	{"/windows", "Windows", true, Reader, "windows.html",
		func(s *Server, _ *http.Request) (int, any, error) { return http.StatusOK, s.fleet().Agenda(), nil }},
	{"/slots", "Slots", true, Reader, "slots.html", func(s *Server, req *http.Request) (int, any, error) {
		return http.StatusOK, map[string]any{"Groups": s.o.Hub.Slots(), "As": s.asOperator(req)}, nil
	}},
	{"/unknown", "Unknown machines", true, Reader, "unknown.html", (*Server).unknownPage},
	{"/replace/{node}", "", false, Reader, "replace.html", (*Server).replacePage}, // its title is the node's name
	{"/audit", "Audit log", true, Reader, "audit.html",
		func(s *Server, req *http.Request) (int, any, error) { return auditLog{s.o.Hub, &s.chain}.page(req) }},
	login,
}

var login = page{"/login", "Log in", false, Nobody, "login.html", func(s *Server, req *http.Request) (int, any, error) {
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
