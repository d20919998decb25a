// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/webhook"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/storetest"
)

// told runs a hub, with receivers that are told at each tick, until the test is over.
func told(t *testing.T, h *hub.Hub, to ...*webhook.Receiver) chan<- time.Time {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended, telling, ticks := make(chan error, 1), make(chan struct{}), make(chan time.Time)
	go func() { ended <- h.Run(ctx) }()
	go func() {
		webhook.Watch(ctx, hooked{h}, to, ticks, t.Logf)
		close(telling)
	}()
	t.Cleanup(func() {
		stop()
		<-telling
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return ticks
}

// TestWebhook: a receiver is told of what people did and of new nodes, once, and of nothing before
// the first look.
func TestWebhook(t *testing.T) {
	came := make(chan string, 100)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body) // it is compared
		came <- string(body)
	}))
	t.Cleanup(s.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	to, err := (&Hooks{URLs: []string{s.URL}, Secret: secret}).open(t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "fleet.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // the test is over
	h, err := hub.Open(t.Context(), hub.Options{Store: db, Say: t.Logf, Index: func(context.Context, string) (hub.Published, error) {
		return hub.Published{Fleet: "metal", Root: "r", Rows: index.Rows{"n1": spec.Published{Generation: 1}}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ticks := told(t, h, to...)
	ticks <- time.Now() // what there is
	ticks <- time.Now() // the look before is over
	for i := range 2 {
		if err := h.Act(t.Context(), "eve", audit.Login, "s", strings.Repeat("x", i)); err != nil {
			t.Fatal(err)
		}
		ticks <- time.Now()
		var got struct {
			Type string
			Data struct{ Rows []audit.Row }
		}
		if text := <-came; json.Unmarshal([]byte(text), &got) != nil || got.Type != "audit.added" || len(got.Data.Rows) != 1 || got.Data.Rows[0].Seq != int64(i+1) {
			t.Errorf("look %d: %s", i, text)
		}
	}
	ticks <- time.Now()
	ticks <- time.Now() // the look before is over
	if len(came) > 0 {
		t.Errorf("told again: %s", <-came)
	}
}

// TestWebhookOverAnOutage: a rollout that halts while the database is away is told when that is back.
func TestWebhookOverAnOutage(t *testing.T) {
	require.Slow(t)
	came := make(chan string, 100)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body) // it is compared
		came <- string(body)
	}))
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	server := storetest.StartPostgres(t)
	db, err := store.Open(t.Context(), server.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // the test is over
	var halted atomic.Bool
	h, err := hub.Open(t.Context(), hub.Options{Store: db, Say: t.Logf, Index: func(context.Context, string) (hub.Published, error) {
		is := rollout.State{Name: "r", Phase: spec.RolloutRunning}
		if halted.Load() {
			is.Phase = spec.RolloutHalted
		}
		return hub.Published{Fleet: "metal", Root: is.Phase, Rollouts: []rollout.State{is}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ticks := told(t, h, webhook.To(at, []byte("s"), t.Logf))
	changes, unwatch := h.Watch()
	defer unwatch()
	until := func(done func() bool) {
		t.Helper()
		for late := time.After(5 * time.Minute); !done(); {
			select {
			case <-changes:
			case <-late:
				t.Fatal("not in 5 minutes")
			}
		}
	}
	until(h.Writes)
	for range 2 { // what there is; the look before is over
		ticks <- time.Now()
	}
	server.Stop()
	until(func() bool { return !h.Writes() })
	halted.Store(true)
	until(func() bool { return h.Rollouts()[0].Phase == spec.RolloutHalted })
	for range 2 {
		ticks <- time.Now()
	}
	if len(came) > 0 {
		t.Errorf("while the database is away: %s", <-came)
	}
	server.Start()
	until(h.Writes)
	ticks <- time.Now()
	select {
	case text := <-came:
		if !strings.Contains(text, `"rollout.changed"`) || !strings.Contains(text, `"from":"running","rollout":"r","to":"halted"`) {
			t.Errorf("when it is back: %s", text)
		}
	case <-time.After(time.Minute):
		t.Error("nobody is told when it is back")
	}
}

func TestWebhookFlags(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags Hooks
		want  string
	}{
		{Hooks{URLs: []string{"https://a.example"}}, "nobody could tell"},
		{Hooks{URLs: []string{"https://a.example"}, Secret: secret}, "not whsec_"},
		{Hooks{URLs: []string{"https://a.example"}, Secret: secret + "x"}, "no such file"},
	} {
		if _, err := c.flags.open(t.Logf); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.flags, err)
		}
	}
	if err := os.WriteFile(secret, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"http://a.example", "https://u:p@a.example", "ftp://a", "a.example", "%"} {
		if _, err := (&Hooks{URLs: []string{bad}, Secret: secret}).open(t.Logf); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
