// SPDX-License-Identifier: Apache-2.0

// Package admit answers an API server that asks, before it stores an object, whether the
// object is valid: by the function that says so in the object's status afterwards.
//
// It is a courtesy to users of kubectl apply, and not a guard: the reconciler judges what
// is stored, whether this was asked or not. So it refuses only what no other object could
// mend, never what is being deleted, and never a change that leaves the content alone.
package admit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/kube/sites"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// Path is where an API server asks.
const Path = "/validate"

// Judge says of objects what a look at their namespace would.
type Judge interface {
	Judge(ctx context.Context, u *unstructured.Unstructured) (sites.Judgement, error)
}

// Handler answers what an API server asks.
type Handler struct {
	Judge      Judge
	Namespaces []string // that are looked after; all of them when empty
	Seen       func(verdict string, took time.Duration)

	reads *httpserver.Turns // of questions that are read and answered, by who asks
	turns chan struct{}     // of questions that are looked at
}

// Bounds of what is asked, by whichever pod.
const (
	MaxQuestion = 3 << 20 // bytes: two objects as large as an API server stores
	MaxConns    = 128     // connections, of which an eighth are an address's
	MaxAsked    = 8       // questions at a time, of which one is an address's
	atOnce      = 2       // of these looked at: each reads a whole namespace
)

// New returns a handler for namespaces, all of them when there are none.
func New(judge Judge, namespaces []string, seen func(verdict string, took time.Duration)) *Handler {
	return &Handler{judge, namespaces, seen, httpserver.NewTurns(MaxAsked, MaxAsked/httpserver.Share), make(chan struct{}, atOnce)}
}

// Words of [Handler.Seen].
const (
	Allowed = "allowed"
	Refused = "refused"
	Failed  = "failed"
)

// ServeHTTP answers over HTTP. A question that cannot be answered gets an error and no answer:
// then the API server does what the failurePolicy says, where it would take an answer for a
// refusal.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	host, _, _ := net.SplitHostPort(req.RemoteAddr) // of a test there is none
	give := h.reads.Take(req.Context(), httpserver.Client(host))
	if give == nil {
		return // who asked is gone
	}
	defer give()
	text, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxQuestion))
	var review admissionv1.AdmissionReview
	if err != nil || tooMany(text) || json.Unmarshal(text, &review) != nil || review.Request == nil {
		http.Error(w, "this is not a question of an API server", http.StatusBadRequest)
		return
	}
	q := admission.Request{AdmissionRequest: *review.Request}
	resp := h.Handle(req.Context(), q)
	if failed(resp) {
		http.Error(w, resp.Result.Message, int(resp.Result.Code))
		return
	}
	if err := resp.Complete(q); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	review.Request, review.Response = nil, &resp.AdmissionResponse
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // who asked is gone
}

// tooMany reports whether a text has more of JSON than two objects that would be taken apart: it
// costs as much as it has values, not bytes.
func tooMany(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	for range 4 * cluster.MaxValues { // names, values and what is around them, of two
		if _, err := d.Token(); err != nil {
			return false // it ends, or is no JSON
		}
	}
	return true
}

// failed reports whether a response is not an answer.
func failed(resp admission.Response) bool {
	return !resp.Allowed && (resp.Result == nil || resp.Result.Code != http.StatusForbidden)
}

// Handle answers one question.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	began := time.Now()
	resp := h.answer(ctx, req)
	verdict := Allowed
	switch {
	case failed(resp):
		verdict = Failed
	case !resp.Allowed:
		verdict = Refused
	}
	if h.Seen != nil {
		h.Seen(verdict, time.Since(began))
	}
	return resp
}

func (h *Handler) answer(ctx context.Context, req admission.Request) admission.Response {
	if len(h.Namespaces) > 0 && !slices.Contains(h.Namespaces, req.Namespace) {
		return admission.Allowed("")
	}
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(req.Object.Raw); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the object: %w", err))
	}
	if u.GetDeletionTimestamp() != nil {
		return admission.Allowed("")
	}
	u.SetNamespace(req.Namespace) // where it goes, whatever it says
	select {
	case h.turns <- struct{}{}:
		defer func() { <-h.turns }()
	case <-ctx.Done():
		return admission.Errored(http.StatusServiceUnavailable, fmt.Errorf("wait for a turn: %w", ctx.Err()))
	}
	j, err := h.Judge.Judge(ctx, u)
	switch {
	case err != nil: // the operator chose what follows, by failurePolicy
		return admission.Errored(http.StatusInternalServerError, err)
	case len(j.Wrong) > 0 && !sameContent(req.OldObject.Raw, req.Object.Raw):
		return admission.Denied(strings.Join(j.Wrong, "\n")).WithWarnings(j.Warnings...)
	}
	return admission.Allowed("").WithWarnings(append(j.Wrong, j.Warnings...)...)
}

// sameContent reports whether an object says what it said before, but for metadata and
// status.
func sameContent(before, after []byte) bool {
	var old, now map[string]any
	if len(before) == 0 || json.Unmarshal(before, &old) != nil || json.Unmarshal(after, &now) != nil {
		return false
	}
	for _, name := range []string{"metadata", "status", "apiVersion"} {
		delete(old, name)
		delete(now, name)
	}
	return reflect.DeepEqual(old, now)
}
