// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

func (s *Server) takeReport(w http.ResponseWriter, req *http.Request) {
	raw, ok := s.body(w, req, sign.MaxReport)
	if !ok {
		return
	}
	if !s.limits.arrival(client(req)) {
		s.tooMany(w, "reports")
		return
	}
	give := s.verifies.Take(req.Context(), client(req))
	if give == nil { // the client is gone
		return
	}
	defer give()
	r, err := s.o.Hub.Open(raw)
	if s.failed(w, err) {
		return
	}
	if !s.limits.report(client(req), s.o.Hub.Owner(r.Key), r.Node) {
		s.tooMany(w, "reports")
		return
	}
	if s.failed(w, s.o.Hub.Take(req.Context(), r, raw, place(req))) {
		return
	}
	if s.o.Hub.Owner(r.Key) != "" { // it counts for a node
		httpserver.Knows(req)
	}
	if s.o.Quotes != nil && s.o.Hub.Owner(r.Key) == r.Node {
		if nonce := s.o.Quotes.Nonce(r); nonce != "" {
			w.Header().Set(spec.NonceHeader, nonce)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) takeQuote(w http.ResponseWriter, req *http.Request) {
	if !s.limits.arrival(client(req)) {
		s.tooMany(w, "reports")
		return
	}
	again, err := "", attest.ErrNonce
	if s.o.Quotes != nil {
		again, err = s.o.Quotes.Take(req.Header.Get(spec.NonceHeader), http.MaxBytesReader(w, req.Body, spec.MaxQuote))
	}
	switch {
	case errors.Is(err, attest.ErrBusy):
		s.fail(w, http.StatusServiceUnavailable, "busy", "%v", err)
	case err != nil:
		s.fail(w, http.StatusConflict, "refused", "%v", err)
	default:
		if again != "" {
			w.Header().Set(spec.NonceHeader, again)
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Server) tooMany(w http.ResponseWriter, what string) {
	w.Header().Set("Retry-After", "60")
	s.fail(w, http.StatusTooManyRequests, "rate", "too many %s", what)
}

// place returns where a node's requests come from, as far as that is known: another one cannot
// easily ask from there, unless all come through one proxy and with one token.
func place(req *http.Request) string {
	if who := callerOf(req); who.Role == people.Reporter {
		return client(req) + " with the token of " + who.Name
	}
	return client(req)
}

func (s *Server) takeHint(w http.ResponseWriter, req *http.Request) {
	raw, ok := s.body(w, req, spec.MaxHint)
	if !ok {
		return
	}
	if !s.limits.hint(client(req)) {
		s.tooMany(w, "hints")
		return
	}
	hint, err := spec.DecodeHint(raw)
	if err != nil {
		s.fail(w, http.StatusBadRequest, "malformed", "%v", err)
		return
	}
	if s.failed(w, s.o.Hub.Hint(hint, address(req))) {
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) getNode(w http.ResponseWriter, req *http.Request) {
	n, err := s.o.Node(req.Context(), req.PathValue("node"))
	if s.failed(w, err) {
		return
	}
	s.answer(w, http.StatusOK, n)
}

func (s *Server) getReports(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	nodes, cursor := s.o.Hub.Since(q.Get("after"))
	if among := s.planned(q); among != nil {
		nodes = slices.DeleteFunc(nodes, func(n *view.Node) bool { return !among[n.Name] })
	}
	var signed map[string]string
	if q.Has("signed") {
		names := plain.Each(nodes, func(n *view.Node) string { return n.Name })
		var err error
		if signed, err = s.o.Hub.Signed(req.Context(), names); err != nil {
			s.failed(w, err)
			return
		}
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if report.Write(w, nodes, signed, s.o.Say) && q.Has("after") {
		_ = json.NewEncoder(w).Encode(report.Cursor{Cursor: cursor}) // nobody listens any more
	}
}

// planned returns the nodes of the first waves of a rollout's plan; nil is all nodes,
// where nobody asks for a plan, or for one that what was read last does not have.
func (s *Server) planned(q url.Values) map[string]bool {
	waves, err := strconv.Atoi(q.Get("waves"))
	for _, r := range s.o.Hub.Rollouts() {
		if err != nil || r.Plan == "" || r.Plan != q.Get("plan") {
			continue
		}
		among := map[string]bool{}
		for _, w := range r.Waves[:min(max(waves, 0), len(r.Waves))] {
			for _, name := range w.Nodes {
				among[name] = true
			}
		}
		return among
	}
	return nil
}

func (s *Server) accept(w http.ResponseWriter, req *http.Request) {
	s.told(w, req, "key", "be the id of the key to accept, as in offered.report.key of the node, or tpmOffered.id", func(key string) error {
		if s.o.Quotes != nil && oci.ValidDigest(key) {
			return s.o.Quotes.Accept(req.Context(), req.PathValue("node"), key, callerOf(req).Name)
		}
		return s.o.Hub.Accept(req.Context(), req.PathValue("node"), key, callerOf(req).Name)
	})
}

func (s *Server) release(w http.ResponseWriter, req *http.Request) {
	s.told(w, req, "reason", "be the reason for the release", func(reason string) error {
		return s.o.Hub.ReleaseSlot(req.Context(), req.PathValue("group"), req.PathValue("node"), callerOf(req).Name, reason)
	})
}

func (s *Server) drained(w http.ResponseWriter, req *http.Request) {
	s.told(w, req, "what", "say what was done to drain the node", func(what string) error {
		return s.o.Hub.Drained(req.Context(), req.PathValue("group"), req.PathValue("node"), callerOf(req).Name, what)
	})
}

// told hands the text of a request's body to do. Where there is none, it answers with code and
// what the body must do.
func (s *Server) told(w http.ResponseWriter, req *http.Request, code, must string, do func(text string) error) {
	body, ok := s.body(w, req, 1<<10)
	if !ok {
		return
	}
	text := strings.TrimSpace(string(body))
	if text == "" {
		s.fail(w, http.StatusBadRequest, code, "the body of the request must %s", must)
		return
	}
	if s.failed(w, do(text)) {
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// lockRequest is FleetLock's, as Zincati sends it.
type lockRequest struct {
	Client struct {
		ID    string `json:"id"`
		Group string `json:"group"`
	} `json:"client_params"`
}

// lock answers FleetLock. A request counts as the node's own where the node signed it:
// see [spec.SlotRequest].
func (s *Server) lock(w http.ResponseWriter, req *http.Request, act string) {
	if req.Header.Get("Fleet-Lock-Protocol") != "true" {
		s.fail(w, http.StatusBadRequest, "no_protocol", "the header fleet-lock-protocol is not true")
		return
	}
	data, ok := s.body(w, req, 4<<10)
	if !ok {
		return
	}
	if !s.limits.slot(client(req)) {
		s.tooMany(w, "requests for slots")
		return
	}
	var r lockRequest
	if err := json.Unmarshal(data, &r); err != nil || r.Client.ID == "" || r.Client.Group == "" {
		s.fail(w, http.StatusBadRequest, "malformed", "client_params has no id or no group")
		return
	}
	proof, why := s.prove(req.Header.Get(ProofHeader), r.Client.ID, r.Client.Group, act)
	if proof.Key == "" && why == "" && !s.o.Unproven {
		why = "the request is not signed by the node; --unproven-slots gives slots to those, too"
	}
	if why != "" {
		s.fail(w, http.StatusForbidden, hub.Unproven, "%s", why)
		return
	}
	proof.Place = place(req)
	do := s.o.Hub.TakeSlot
	if act == "steady-state" {
		do = s.o.Hub.FreeSlot
	}
	if s.failed(w, do(req.Context(), r.Client.Group, r.Client.ID, proof)) {
		return
	}
	s.answer(w, http.StatusOK, map[string]string{})
}

// ProofHeader holds a [spec.SlotRequest], signed as a report is, in base64.
const ProofHeader = "Caisson-Proof"

// prove returns what a header proves of a request, and else why it proves nothing.
// Both are empty without a header. Whether the key counts is the hub's to say.
func (s *Server) prove(header, node, group, act string) (p hub.Proof, why string) {
	if header == "" {
		return p, ""
	}
	raw, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return p, "the proof is not base64"
	}
	payload, by, err := sign.OpenReport(raw)
	if err != nil {
		return p, err.Error()
	}
	r, err := spec.DecodeSlotRequest(payload)
	if err != nil {
		return p, err.Error()
	}
	if r.Key != by.ID() {
		return p, "the proof is not one of a request for a slot"
	}
	if err := s.bindings.Run(bound{r, spec.SlotRequest{Fleet: s.o.Hub.Fleet().Name, Node: node, Group: group, Act: act}}); err != nil {
		return p, err.Error()
	}
	return hub.Proof{Key: r.Key, Boot: r.BootID, At: r.Time}, ""
}

// bound holds what was signed beside what is asked.
type bound struct{ signed, asked spec.SlotRequest }

var errOther = errors.New("the proof is for another request")

// bindings tie a proof to the request that it comes with.
var bindings = check.List[bound]{
	{Name: "of this fleet", OK: same(func(r spec.SlotRequest) string { return r.Fleet })},
	{Name: "of this node", OK: same(func(r spec.SlotRequest) string { return r.Node })},
	{Name: "of this group", OK: same(func(r spec.SlotRequest) string { return r.Group })},
	{Name: "of this act", OK: same(func(r spec.SlotRequest) string { return r.Act })},
}

func same(of func(spec.SlotRequest) string) func(bound) error {
	return func(b bound) error {
		if of(b.signed) != of(b.asked) {
			return errOther
		}
		return nil
	}
}

// Streams of events that may be open at once: in all, and for one who asks. An open page
// has one.
const (
	maxStreams    = 256
	clientStreams = 32
)

// events tells a browser that something changed; what it is, it asks for.
func (s *Server) events(w http.ResponseWriter, req *http.Request) {
	who, says := client(req), "this address"
	if c := callerOf(req); s.o.Tokens != nil { // many may come from one address, by a proxy
		who, says = "token "+c.Name, "the token of "+c.Name
	}
	give, err := s.streams.Take(who)
	switch {
	case errors.Is(err, httpserver.ErrClient):
		s.fail(w, http.StatusTooManyRequests, "streams",
			"%d streams of events are open for %s, which is the most: close one", clientStreams, says)
		return
	case err != nil:
		s.fail(w, http.StatusServiceUnavailable, "streams", "%d streams of events are open, which is the most", maxStreams)
		return
	}
	defer give()
	changes, stop := s.o.Hub.Watch()
	defer stop()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events until there are many
	send := func(text string) bool {
		if s.o.Tokens != nil && !s.caller(req).Role.May(people.Reader) {
			return false // the session is over, or the token was taken away
		}
		_, err := io.WriteString(w, text)
		return err == nil && out.Flush() == nil
	}
	beat := time.NewTicker(20 * time.Second) // so that who is gone is noticed, and proxies do not cut
	defer beat.Stop()
	for ok := send("retry: 3000\n\n"); ok; {
		select {
		case <-req.Context().Done():
			return
		case <-s.ctx.Done():
			return
		case <-beat.C:
			ok = send(": still here\n\n")
		case <-changes:
			ok = send("event: change\ndata: {}\n\n")
			select {
			case <-time.After(time.Second): // more often nobody reads
			case <-s.ctx.Done():
				return
			}
		}
	}
}

// answers are the types of what routes answer with 200.
var answers = map[string]any{
	"GET /v1/summary": query.Summary{}, "GET /v1/nodes": query.List{}, "GET /v1/rollouts": Rollouts{},
	"GET /v1/nodes/{node}": query.Node{}, "GET /v1/services": query.Services{}, "GET /v1/layers": Layers{},
	"GET /v1/unknown": unknown.Answer{}, "GET /v1/generations": []history.Entry{}, "GET /v1/generations/{range}": history.Difference{},
	"GET /v1/slots": Slots{},
}

// orders name the columns that a list is sorted by, from either end.
func orders() (list []view.Order) {
	for _, o := range view.Orders {
		list = append(list, o, "-"+o)
	}
	return list
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// openAPI describes the API in OpenAPI 3.1, from the table of routes and from the types
// that they answer with.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	paths := map[string]map[string]any{}
	for _, r := range s.routes() {
		if r.says == "" {
			continue
		}
		method, path, _ := strings.Cut(r.pattern, " ")
		done := map[string]any{"description": "Done."}
		if t, ok := answers[r.pattern]; ok {
			reflector := jsonschema.Reflector{ExpandedStruct: true, Anonymous: true, DoNotReference: true}
			schema := reflector.Reflect(t)
			schema.Version = ""
			done["content"] = map[string]any{"application/json": map[string]any{"schema": schema}}
		}
		ok := "200"
		if method == "POST" && !strings.Contains(path, "-") {
			ok = "204"
		}
		operation := map[string]any{"summary": r.says, "responses": map[string]any{ok: done, "default": map[string]any{"description": "An error.",
			"content": map[string]any{"application/json": map[string]any{"schema": map[string]any{"type": "object",
				"properties": map[string]any{"kind": map[string]any{"type": "string"}, "value": map[string]any{"type": "string"},
					"hint": map[string]any{"type": "string"}}}}}}}}
		if r.role != people.Nobody {
			operation["security"] = []any{map[string]any{"token": []string{}}}
			operation["description"] = "Needs a token of role " + string(r.role) + ", where the service has tokens."
		}
		parameters := plain.Each(parameter.FindAllStringSubmatch(path, -1), func(m []string) any {
			return map[string]any{"name": m[1], "in": "path", "required": true, "schema": map[string]any{"type": "string"}}
		})
		if r.pattern == "GET /v1/nodes" {
			for _, name := range query.Parameters {
				schema := map[string]any{"type": "string"}
				switch name {
				case "condition":
					schema["enum"] = view.ConditionWords()
				case "sort":
					schema["enum"] = orders()
				case "from", "most":
					schema["type"] = "integer"
				case "label", "setting":
					schema = map[string]any{"type": "array", "items": schema, "maxItems": query.MaxLabels} // as in label=a=1&label=b=2
				}
				parameters = append(parameters, map[string]any{"name": name, "in": "query", "schema": schema})
			}
		}
		if parameters != nil {
			operation["parameters"] = parameters
		}
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		paths[path][strings.ToLower(method)] = operation
	}
	s.answer(w, http.StatusOK, map[string]any{
		"openapi":    "3.1.0",
		"info":       map[string]any{"title": "caisson fleet serve", "version": "v1", "description": "What a fleet's nodes should be and are."},
		"paths":      paths,
		"components": map[string]any{"securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer"}}},
	})
}
