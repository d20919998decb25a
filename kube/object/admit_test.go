// SPDX-License-Identifier: Apache-2.0

package object

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/caisson-os/caisson/spec/site/cluster"
)

type judge func(u *unstructured.Unstructured) (Judgement, error)

func (j judge) Judge(_ context.Context, u *unstructured.Unstructured) (Judgement, error) {
	return j(u)
}

func question(namespace, was, is string) admission.Request {
	r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Namespace: namespace, Object: runtime.RawExtension{Raw: []byte(is)}}}
	if was != "" {
		r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(was)
	}
	return r
}

// TestAnswers: what is refused, and what never is, however wrong.
func TestAnswers(t *testing.T) {
	const (
		head    = `{"apiVersion": "caisson.dev/v1alpha1", "kind": "NodeSet", "metadata": {"name": "x"`
		stored  = head + `}, "spec": {"a": 1}}`
		labels  = head + `, "labels": {"a": "b"}}, "spec": {"a": 1}, "status": {}}`
		other   = head + `}, "spec": {"a": 2}}`
		deleted = head + `, "deletionTimestamp": "2026-11-23T00:00:00Z"}, "spec": {"a": 2}}`
	)
	wrong := func(*unstructured.Unstructured) (Judgement, error) {
		return Judgement{Wrong: []string{"it is wrong"}, Warnings: []string{"so is another"}}, nil
	}
	for _, test := range []struct {
		name      string
		judge     judge
		q         admission.Request
		verdict   string
		code      int32
		warnings  int
		forbidden string
	}{
		{"a new object", wrong, question("metal-a", "", stored), Refused, http.StatusForbidden, 1, "it is wrong"},
		{"another content", wrong, question("metal-a", stored, other), Refused, http.StatusForbidden, 1, "it is wrong"},
		{"other labels", wrong, question("metal-a", stored, labels), Allowed, http.StatusOK, 2, ""},
		{"it is being deleted", wrong, question("metal-a", stored, deleted), Allowed, http.StatusOK, 0, ""},
		{"a namespace of nobody", wrong, question("other", "", stored), Allowed, http.StatusOK, 0, ""},
		{"no object", wrong, question("metal-a", "", "x"), Failed, http.StatusBadRequest, 0, ""},
		{"nobody knows", func(*unstructured.Unstructured) (Judgement, error) {
			return Judgement{}, errors.New("no memory")
		}, question("metal-a", "", stored), Failed, http.StatusInternalServerError, 0, ""},
	} {
		seen := ""
		h := NewHandler(test.judge, []string{"metal-a"}, func(verdict string, _ time.Duration) { seen = verdict })
		resp := h.Handle(t.Context(), test.q)
		if seen != test.verdict || resp.Result.Code != test.code || len(resp.Warnings) != test.warnings || resp.Allowed != (test.verdict == Allowed) {
			t.Errorf("%s: %s %+v", test.name, seen, resp)
		}
		if test.forbidden != "" && resp.Result.Message != test.forbidden {
			t.Errorf("%s: %q", test.name, resp.Result.Message)
		}
	}
}

// TestTurns: many questions at once are looked at two at a time, and one whose time is over
// does not wait.
func TestTurns(t *testing.T) {
	var at, most atomic.Int64
	release := make(chan struct{})
	h := NewHandler(judge(func(*unstructured.Unstructured) (Judgement, error) {
		n := at.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
		at.Add(-1)
		return Judgement{}, nil
	}), nil, nil)
	q := question("metal-a", "", `{"apiVersion": "caisson.dev/v1alpha1", "kind": "NodeSet", "metadata": {"name": "x"}}`)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if resp := h.Handle(t.Context(), q); !resp.Allowed {
				t.Errorf("%+v", resp)
			}
		})
	}
	for at.Load() < atOnce {
		time.Sleep(time.Millisecond)
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	if resp := h.Handle(over, q); resp.Allowed {
		t.Errorf("%+v", resp)
	}
	close(release)
	wg.Wait()
	if most.Load() != atOnce {
		t.Errorf("%d were looked at at once", most.Load())
	}
}

// TestOneAddress: an address has one question read and answered at a time, however many it asks,
// and another address has its answer meanwhile; a question that is too large, or has too many
// values, is not taken apart.
func TestOneAddress(t *testing.T) {
	stored := []byte(`{"apiVersion": "caisson.dev/v1alpha1", "kind": "NodeSet", "metadata": {"name": "x"}, "spec": {}}`)
	ask := func(h *Handler, from string, raw []byte) int {
		t.Helper()
		q := question("metal-a", "", string(raw)).AdmissionRequest
		text, err := json.Marshal(admissionv1.AdmissionReview{Request: &q})
		if err != nil {
			t.Fatal(err)
		}
		req := httptest.NewRequest(http.MethodPost, AskedAt, bytes.NewReader(text))
		req.RemoteAddr = from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		return w.Code
	}
	begun, end := make(chan struct{}, 10), make(chan struct{})
	h := NewHandler(judge(func(*unstructured.Unstructured) (Judgement, error) {
		begun <- struct{}{}
		<-end
		return Judgement{}, nil
	}), nil, nil)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { ask(h, "192.0.2.1:1000", stored) })
	}
	<-begun
	all.Go(func() { ask(h, "192.0.2.2:1000", stored) })
	<-begun // both are looked at: of the first address no more than one
	close(end)
	all.Wait()

	h = NewHandler(judge(func(*unstructured.Unstructured) (Judgement, error) {
		t.Error("it was taken apart")
		return Judgement{}, nil
	}), nil, nil)
	many := []byte(`{"spec": [` + strings.Repeat("[],", 2*cluster.MaxValues) + `[]]}`)
	for name, raw := range map[string][]byte{"large": []byte(`{"spec": "` + strings.Repeat("x", MaxQuestion) + `"}`), "many": many} {
		if code := ask(h, "192.0.2.1:1000", raw); code != http.StatusBadRequest || name == "many" && len(raw) > MaxQuestion {
			t.Errorf("%s: %d of %d bytes", name, code, len(raw))
		}
	}
}
