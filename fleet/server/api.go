// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

func (s *Server) takeReport(w http.ResponseWriter, req *http.Request) {
	raw, ok := s.body(w, req, sign.MaxReport)
	if !ok {
		return
	}
	if !s.limits.report(address(req) + " " + claimed(raw)) {
		w.Header().Set("Retry-After", "60")
		s.fail(w, http.StatusTooManyRequests, "rate", "more than one report a second")
		return
	}
	s.verifies <- struct{}{}
	defer func() { <-s.verifies }()
	if err := s.o.Hub.Report(req.Context(), raw); err != nil {
		s.failed(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// claimed is the key that a report names: what is not verified yet serves to count.
func claimed(raw []byte) string {
	var r struct {
		Signatures []struct{ KeyID string }
	}
	if json.Unmarshal(raw, &r) != nil || len(r.Signatures) != 1 {
		return ""
	}
	return r.Signatures[0].KeyID
}

// Summary is what GET /v1/summary answers.
type Summary struct {
	hub.Fleet
	view.Summary
	Time time.Time `json:"time"`
}

func (s *Server) summary() Summary {
	now := s.o.Hub.Now()
	return Summary{s.o.Hub.Fleet(), view.Summarise(s.o.Hub.Nodes(), now), now.UTC().Truncate(time.Second)}
}

func (s *Server) getSummary(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, s.summary())
}

// List is what GET /v1/nodes answers.
type List struct {
	Nodes []view.Line `json:"nodes"`
	All   int         `json:"all"` // that meet the query
	From  int         `json:"from"`
}

// maxListed bounds a page of a list.
const maxListed = 1000

func (s *Server) list(req *http.Request, usual int) (List, view.Query) {
	v := req.URL.Query()
	q := view.Query{Text: v.Get("q"), Condition: view.Condition(v.Get("condition")), Layer: v.Get("layer"), Version: v.Get("version"), Sync: v.Get("sync"), Health: v.Get("health"), Differs: v.Get("differs") != ""}
	number := func(name string, otherwise, most int) int {
		n, err := strconv.Atoi(v.Get(name))
		if err != nil || n < 0 {
			return otherwise
		}
		return min(n, most)
	}
	l := List{From: number("from", 0, 1<<30)}
	l.Nodes, l.All = view.Select(s.o.Hub.Nodes(), q, l.From, number("most", usual, maxListed), s.o.Hub.Now())
	if l.Nodes == nil {
		l.Nodes = []view.Line{}
	}
	return l, q
}

func (s *Server) getNodes(w http.ResponseWriter, req *http.Request) {
	l, _ := s.list(req, maxListed)
	s.answer(w, http.StatusOK, l)
}

func (s *Server) getNode(w http.ResponseWriter, req *http.Request) {
	d, err := s.o.Hub.Node(req.Context(), req.PathValue("node"))
	if err != nil {
		s.failed(w, err)
		return
	}
	s.answer(w, http.StatusOK, d)
}

func (s *Server) getReports(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := json.NewEncoder(w)
	for _, n := range s.o.Hub.Nodes() {
		if r, ok := n.Reported(); ok && lines.Encode(r) != nil {
			return // nobody listens any more
		}
	}
}

func (s *Server) getSlots(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, map[string]any{"groups": s.o.Hub.Slots()})
}

func (s *Server) accept(w http.ResponseWriter, req *http.Request) {
	if err := s.o.Hub.Accept(req.Context(), req.PathValue("node"), callerOf(req).Name); err != nil {
		s.failed(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) release(w http.ResponseWriter, req *http.Request) {
	text, ok := s.body(w, req, 1<<10)
	reason := strings.TrimSpace(string(text))
	if !ok {
		return
	}
	if reason == "" {
		s.fail(w, http.StatusBadRequest, "reason", "a slot is released for a reason: the body of the request")
		return
	}
	if err := s.o.Hub.ReleaseSlot(req.Context(), req.PathValue("group"), req.PathValue("node"), callerOf(req).Name, reason); err != nil {
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

func (s *Server) preReboot(w http.ResponseWriter, req *http.Request) { s.lock(w, req, "pre-reboot") }
func (s *Server) steadyState(w http.ResponseWriter, req *http.Request) {
	s.lock(w, req, "steady-state")
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
	var r lockRequest
	if err := json.Unmarshal(data, &r); err != nil || r.Client.ID == "" || r.Client.Group == "" {
		s.fail(w, http.StatusBadRequest, "malformed", "client_params has no id or no group")
		return
	}
	key, why := s.prove(req.Header.Get(ProofHeader), r.Client.ID, r.Client.Group, act)
	if key == "" && (why != "" || !s.o.Unproven) {
		if why == "" {
			why = "the request is not signed by the node; --unproven-slots gives slots to those, too"
		}
		s.fail(w, http.StatusForbidden, "unproven", "%s", why)
		return
	}
	do := s.o.Hub.TakeSlot
	if act == "steady-state" {
		do = s.o.Hub.FreeSlot
	}
	if err := do(req.Context(), r.Client.Group, r.Client.ID, key); err != nil {
		s.failed(w, err)
		return
	}
	s.answer(w, http.StatusOK, map[string]string{})
}

// ProofHeader holds a [spec.SlotRequest], signed as a report is, in base64.
const ProofHeader = "Caisson-Proof"

// proofAge is how far a node's clock may be off. A request that is played back within
// it takes or frees the slot that its node has just taken or freed.
const proofAge = 2 * time.Minute

// prove returns the id of the key that signed a request, where that is the node's key,
// and else why it proves nothing. Both are "" without a proof.
func (s *Server) prove(header, node, group, act string) (key, why string) {
	if header == "" {
		return "", ""
	}
	raw, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return "", "the proof is not base64"
	}
	payload, by, err := sign.OpenReport(raw)
	if err != nil {
		return "", err.Error()
	}
	var r spec.SlotRequest
	if err := spec.Decode(payload, &r); err != nil {
		return "", err.Error()
	}
	now := s.o.Hub.Now()
	switch counts := s.o.Hub.KeyOf(node); {
	case r.APIVersion != spec.APIVersion || r.Kind != spec.KindSlotRequest || r.Key != by.ID():
		return "", "the proof is not one of a request for a slot"
	case r.Fleet != s.o.Hub.Fleet().Name || r.Node != node || r.Group != group || r.Act != act:
		return "", "the proof is of another request"
	case r.Time.Before(now.Add(-proofAge)) || r.Time.After(now.Add(proofAge)):
		return "", "the proof is of another time: " + r.Time.UTC().Format(time.RFC3339)
	case counts == "":
		return "", "the node has not reported yet: no key of it is known"
	case counts != by.ID():
		return "", "the proof is by another key than the node reports with"
	}
	return by.ID(), ""
}
