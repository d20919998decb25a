// SPDX-License-Identifier: Apache-2.0

// Package server is the fleet's service on the network: it takes reports and requests
// for slots from nodes, and shows a hub to people and programs as a page, as JSON and
// as metrics.
//
// Who may do what is decided in auth.go and nowhere else; the table of routes names the
// role that each takes. A page never acts on a node: for what needs an operator's key
// it shows the command. What is shown was written by nodes, which may lie: it goes
// through html/template, and no script is taken from elsewhere. cmd/caisson and
// fleet/service import the package.
package server

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strings"

	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/metrics"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Options say who may ask.
type Options struct {
	query.Fleet                                   // that is served
	Layers      Differences                       // nil: layers are not compared
	Past        Past                              // nil: earlier generations are not shown
	Unknown     func() ([]unknown.Machine, error) // machines that asked in vain; nil: nobody knows
	Quotes      *attest.Desk                      // nil: nodes are asked for no quotes
	Tokens      *people.Tokens                    // nil: everybody may read and report, and nobody is an operator
	People      *People                           // nil: people log in by tokens alone
	Hosts       []string                          // names by which the service is reached, with or without port; see hostAllowed
	// by which people reach the service, for the commands that the page shows; "" is what a browser
	// asked for
	URL      string
	TLS      bool               // the page is reached by https: its cookie goes nowhere else
	Unproven bool               // slots are given to nodes that prove nothing, as Zincati's do
	Registry string             // for the commands that the page shows
	Names    func() query.Names // for them, too
	Version  string
	Say      func(format string, args ...any)
}

// Server is the handler.
type Server struct {
	o        Options
	ctx      context.Context
	next     http.Handler
	guards   check.List[*http.Request]
	bindings check.List[bound]
	pages    pages
	sessions *people.Sessions
	limits   *limits
	streams  *httpserver.Quota // of streams of events
	verifies *httpserver.Turns // one a signature that is verified
	chain    audit.Look        // of the audit log
}

// maxVerifies is how many signatures of reports are verified at once.
const maxVerifies = 64

// pages are templates by the names of their files.
type pages interface {
	ExecuteTemplate(w io.Writer, name string, data any) error
}

func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) { s.next.ServeHTTP(w, req) }

//go:embed page static
var files embed.FS

// New returns the handler. Streams of events end with ctx.
func New(ctx context.Context, o Options) (*Server, error) {
	verifies := maxVerifies / httpserver.Share // of one address
	if o.URL != "" {
		verifies = maxVerifies // behind a proxy all have its address
	}
	s := &Server{o: o, ctx: ctx, sessions: people.NewSessions(), limits: newLimits(),
		streams: httpserver.NewQuota(maxStreams, clientStreams), verifies: httpserver.NewTurns(maxVerifies, verifies)}
	s.guards, s.bindings = s.guardList(), bindings
	if o.Tokens != nil {
		o.Tokens.Tell(o.Say)
	}
	var err error
	if s.pages, err = template.New("").Funcs(s.words()).ParseFS(files, "page/*.html"); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	s.next = s.guard(mux)
	for _, r := range s.routes() {
		mux.Handle(r.pattern, s.need(r.role, r.handle))
	}
	mux.Handle("GET /static/", http.HandlerFunc(s.static))
	mux.Handle("GET /", s.need(people.Reader, s.noPage))
	return s, nil
}

// gives answers with a document that is always there.
func (s *Server) gives(doc func(context.Context) any) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) { s.answer(w, http.StatusOK, doc(req.Context())) }
}

// route is one row of the service's table.
type route struct {
	pattern string
	role    people.Role
	says    string // for the description of the API; "" for a page
	handle  http.HandlerFunc
}

func (s *Server) routes() []route {
	list := []route{
		{"POST /v1/report", people.Reporter, "Take a signed report. The answer comes when it is on the disk, and has a nonce in " +
			"the header Caisson-Nonce where a quote of the node's TPM is wanted.", s.takeReport},
		{"POST " + spec.QuotePath, people.Reporter, "Take a quote over such a nonce, which is in the same header. It is verified " +
			"after the answer, which may have another nonce.", s.takeQuote},
		{"POST /v1/hint", people.Reporter, "Take an unsigned hint that a node's loader boots nothing. It is shown as unproven for " +
			"an hour, and nothing follows from it.", s.takeHint},
		{"POST /v1/pre-reboot", people.Reporter, "FleetLock: ask for a slot.",
			func(w http.ResponseWriter, req *http.Request) { s.lock(w, req, "pre-reboot") }},
		{"POST /v1/steady-state", people.Reporter, "FleetLock: give a slot back.",
			func(w http.ResponseWriter, req *http.Request) { s.lock(w, req, "steady-state") }},
		{"GET /v1/summary", people.Reader, "The fleet at a glance.", s.gives(func(context.Context) any { return s.o.Summary() })},
		{"GET /v1/nodes", people.Reader, "Nodes that meet a query: q, condition, layer, version, sync, health, service, commit, " +
			"differs, label (KEY=VALUE, several must all hold) and set (a NodeSet) where the service has a site; sorted by " +
			"sort (condition, the worst first, is the default; name, generation, layer, reported; from the other end with - " +
			"before it): most of them from one place on. A value that no node can match is an error.", s.getNodes},
		{"GET /v1/nodes/{node}", people.Reader, "One node in full.", s.getNode},
		{"GET /v1/reports", people.Reader, "What each node reported last, one line of JSON a node; with signed=1 also the report " +
			"as the node signed it; with plan (the digest of a rollout's) and waves the nodes of its first waves, where the " +
			"service knows it; with after only what changed since the answer whose last line has that cursor, and a last line.", s.getReports},
		{"GET /v1/rollouts", people.Reader, "Rollouts and how far their waves are.",
			s.gives(func(context.Context) any { return Rollouts{s.o.Hub.Rollouts()} })},
		{"GET /v1/services", people.Reader, "Services: what the site follows and locked, what nodes were sent and what they report.",
			s.gives(func(context.Context) any { return s.o.Services() })},
		{"GET /v1/layers", people.Reader, "Layers in use, and how they differ from the one that most nodes run.",
			s.gives(func(ctx context.Context) any { return s.layers(ctx) })},
		{"GET /v1/generations", people.Reader, "Generations that are kept, the newest first, as 'caisson history' lists them: with " +
			"node those that changed it, with key, too, those in which that setting changed.", s.getGenerations},
		{"GET /v1/generations/{range}", people.Reader, "What lies between two generations, as 41..45: on how many nodes, what " +
			"kinds of changes, and the changes of nodes that changed alike; 45 is what 45 changed, 41.. goes up to now, and " +
			"with node it is about that one. With node and beside: in what that differs from another one now.", s.getGenerations},
		{"GET /v1/slots", people.Reader, "Groups of slots and who holds them.",
			s.gives(func(context.Context) any { return Slots{s.o.Hub.Slots()} })},
		{"GET /v1/events", people.Reader, "Server-sent events: 'change' after each change, at most one a second.", s.events},
		{"POST /v1/nodes/{node}/accept", people.Operator, "Accept a key for a node: the one that is offered, an earlier one, one " +
			"that has not reported yet, or the one that counts, to pin it. The body is its id. Or, by a digest, what its TPM " +
			"showed last.", s.accept},
		{"POST /v1/slots/{group}/{node}/release", people.Operator, "Take a slot from a node; the body is a reason.", s.release},
		{"POST /v1/slots/{group}/{node}/drained", people.Drain, "Say that a node which waits for it is drained; the body is what " +
			"was done.", s.drained},
		{"GET /v1/acts", people.Reader, "The audit log, one line of JSON a row, the oldest first, 10,000 at a time: rows after the " +
			"one whose number is after.", s.getActs},
		{"GET /v1/unknown", people.Reader, "Machines that asked for an overlay and have none, those that asked last first. What " +
			"they say of themselves is not proven.", s.gives(func(context.Context) any { return s.strangers() })},
		{"GET /metrics", people.Reader, "Metrics in the text format of Prometheus.", s.metrics},
		{"GET /openapi.json", people.Nobody, "This description.", s.openAPI},
		{"GET /healthz", people.Nobody, "200 while the service answers; with writer only while this instance takes reports " +
			"and acts, else 503.", s.healthz},
		{"POST /login", people.Nobody, "", s.login},
		{"POST /logout", people.Nobody, "", s.logout},
		{"POST /login/token", people.Reader, "", logins{s}.personToken},
		{"GET /login/provider", people.Nobody, "", logins{s}.toProvider},
		{"GET " + BackPath, people.Nobody, "", logins{s}.fromProvider},
	}
	for _, p := range allPages {
		list = append(list, route{"GET " + p.pattern(), p.role, "", s.page(p)})
	}
	return list
}

// guard returns what holds for every request.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
			"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if s.o.TLS {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if refused, is := errors.AsType[*guardError](s.guards.Run(req)); is {
			s.fail(w, refused.status, refused.kind, "%s", refused.why)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// guardError says why a request is not looked at.
type guardError struct {
	status    int
	kind, why string
}

func (e *guardError) Error() string { return e.why }

// guardList returns what the requests of all clients have to meet.
func (s *Server) guardList() check.List[*http.Request] {
	sites := http.NewCrossOriginProtection()
	return check.List[*http.Request]{
		{Name: "a name of this service", OK: func(req *http.Request) error {
			if s.hostAllowed(req.Host) {
				return nil
			}
			// A page of somebody else's may have a name that leads here by now.
			return &guardError{http.StatusMisdirectedRequest, "host",
				fmt.Sprintf("this service is not reached by the name %.80q; --host adds one", req.Host)}
		}},
		{Name: "no token in the address", OK: func(req *http.Request) error {
			if !tokenInURL(req) {
				return nil
			}
			return &guardError{http.StatusBadRequest, "token-in-url",
				"a token in an address is in every log on the way: send it in the header Authorization, and make another one"}
		}},
		{Name: "same site", OK: func(req *http.Request) error {
			if err := sites.Check(req); err != nil {
				return &guardError{http.StatusForbidden, "cross-site", err.Error()}
			}
			return nil
		}},
	}
}

// problem holds what every error is as JSON. The field's names are FleetLock's.
type problem struct {
	Kind  string `json:"kind"`
	Value string `json:"value"`
	Hint  string `json:"hint,omitempty"` // what the client can do about it
}

// problemOf returns an error with its hint.
func problemOf(kind string, err error) problem {
	return problem{kind, plain.Line(err.Error()), plain.Line(cli.HintOf(err))}
}

func (s *Server) fail(w http.ResponseWriter, status int, kind, format string, args ...any) {
	s.answer(w, status, problem{Kind: kind, Value: plain.Line(fmt.Sprintf(format, args...))})
}

// answer writes a document, whole or not at all: what nodes wrote may be what JSON has no
// form for.
func (s *Server) answer(w http.ResponseWriter, status int, doc any) {
	text, err := json.Marshal(doc) // with < as six bytes: no browser, however old, makes a page of it
	if err != nil {
		s.o.Say("answer: %v", err)
		status = http.StatusInternalServerError
		text = []byte(`{"kind":"service","value":"the answer could not be written, and the log of the service says why"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client is gone
}

// failed answers an error of the hub, and reports whether there is one.
func (s *Server) failed(w http.ResponseWriter, err error) bool {
	var refused *hub.RefusedError
	var slot *hub.SlotError
	var other *attest.NotOffered
	switch {
	case err == nil:
	case errors.As(err, &other):
		s.fail(w, http.StatusConflict, "refused", "%v", other)
	case errors.As(err, &refused):
		s.fail(w, http.StatusConflict, "refused", "%s", refused.Why)
	case errors.As(err, &slot) && slot.Kind == hub.Unproven:
		s.fail(w, http.StatusForbidden, slot.Kind, "%s", slot.Why)
	case errors.As(err, &slot):
		s.fail(w, http.StatusConflict, slot.Kind, "%s", slot.Why)
	case errors.Is(err, hub.ErrNoNode):
		s.answer(w, http.StatusNotFound, problemOf(query.NoNode, err))
	case errors.Is(err, hub.ErrReadOnly):
		s.fail(w, http.StatusServiceUnavailable, "read-only", "%v", err)
	case errors.Is(err, hub.ErrAway):
		s.fail(w, http.StatusServiceUnavailable, "database", "%v", err)
	default:
		s.o.Say("%v", err)
		s.fail(w, http.StatusServiceUnavailable, "service", "the service could not do it, and its log says why")
	}
	return err != nil
}

// body reads a request's body up to a limit.
func (s *Server) body(w http.ResponseWriter, req *http.Request, limit int64) ([]byte, bool) {
	data, err := io.ReadAll(http.MaxBytesReader(w, req.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		s.fail(w, http.StatusRequestEntityTooLarge, "too-large", "more than %d bytes", limit)
	case err != nil:
		s.fail(w, http.StatusBadRequest, "body", "%v", err)
	}
	return data, err == nil
}

func (s *Server) static(w http.ResponseWriter, req *http.Request) {
	name := strings.TrimPrefix(req.URL.Path, "/")
	if strings.HasSuffix(name, "/") {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=3600")
	http.ServeFileFS(w, req, files, name)
}

func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(metrics.Of(&s.o.Fleet, s.o.Version)) // the client is gone
}

func (s *Server) healthz(w http.ResponseWriter, req *http.Request) {
	if err := s.o.Hub.WriteError(); err != nil && req.URL.Query().Has("writer") {
		s.failed(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n") // the client is gone
}
