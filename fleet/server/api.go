// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/hub"
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
	if err != nil {
		s.failed(w, err)
		return
	}
	if !s.limits.report(client(req), s.o.Hub.Owner(r.Key), r.Node) {
		s.tooMany(w, "reports")
		return
	}
	if err := s.o.Hub.Take(req.Context(), r, raw, place(req)); err != nil {
		s.failed(w, err)
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
	if who := callerOf(req); who.Role == Reporter {
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
	if err := s.o.Hub.Hint(hint, address(req)); err != nil {
		s.failed(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) getNode(w http.ResponseWriter, req *http.Request) {
	n, err := s.fleet().Node(req.Context(), req.PathValue("node"))
	if err != nil {
		s.failed(w, err)
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
	if writeReports(w, nodes, signed, s.o.Say) && q.Has("after") {
		_ = json.NewEncoder(w).Encode(view.Cursor{Cursor: cursor}) // nobody listens any more
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
	if err := do(text); err != nil {
		s.failed(w, err)
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
	if err := do(req.Context(), r.Client.Group, r.Client.ID, proof); err != nil {
		s.failed(w, err)
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
		if s.o.Tokens != nil && !s.caller(req).Role.may(Reader) {
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
