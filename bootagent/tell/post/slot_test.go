// SPDX-License-Identifier: Apache-2.0

package post

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/stalled"
)

// lockServer counts as airlock does, and refuses what it refuses.
type lockServer struct {
	sync.Mutex
	max     map[string]int
	holders map[string][]string
	asked   []string
}

func (s *lockServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Lock()
	defer s.Unlock()
	refuse := func(code int, kind, value string) {
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(refusal{kind, value}); err != nil {
			panic(err)
		}
	}
	var body slotRequest
	if r.Header.Get("fleet-lock-protocol") != "true" {
		refuse(400, "wrong_protocol", "wrong 'fleet-lock-protocol' header")
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		refuse(400, "bad_request", err.Error())
		return
	}
	id, group := body.Client.ID, body.Client.Group
	switch {
	case r.Method != http.MethodPost:
		refuse(405, "method", "not a POST")
		return
	case group == "" || id == "":
		refuse(400, "bad_request", "empty node ID or group")
		return
	case s.max[group] == 0:
		refuse(400, "unknown_group", fmt.Sprintf("unknown group %q", group))
		return
	}
	s.asked = append(s.asked, r.URL.Path)
	at := slices.Index(s.holders[group], id)
	switch r.URL.Path {
	case "/v1/pre-reboot":
		if at < 0 && len(s.holders[group]) >= s.max[group] {
			refuse(500, "failed_lock", "all semaphore slots currently locked")
			return
		}
		if at < 0 {
			s.holders[group] = append(s.holders[group], id)
		}
	case "/v1/steady-state":
		if at >= 0 {
			s.holders[group] = slices.Delete(s.holders[group], at, at+1)
		}
	default:
		refuse(404, "path", "there is nothing here")
	}
}

// refusal is a server's error for a request that it does not meet.
type refusal struct {
	Kind  string `json:"kind"`
	Value string `json:"value"`
}

// slotPost asks a server as the protocol has it.
func slotPost(ctx context.Context, server, act, group string, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server+"/v1/"+act, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("fleet-lock-protocol", "true")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("answers %d: %s", answer.StatusCode, text)
	}
	return err
}

func TestFleetLock(t *testing.T) {
	l := &lockServer{max: map[string]int{"storage": 1, "rack.r1": 2}, holders: map[string][]string{}}
	server := httptest.NewServer(l)
	defer server.Close()
	s := spec.Slot{Max: 1, FleetLock: server.URL}
	turns(t, s, "all semaphore slots currently locked")
	if err := (Holder{Node: "a", Ask: slotPost}).Take(t.Context(), "unknown", s); err == nil || !strings.Contains(err.Error(), "unknown group") {
		t.Errorf("%v", err)
	}
	if err := (Holder{Ask: slotPost}).Take(t.Context(), "storage", s); err == nil || !strings.Contains(err.Error(), "empty node ID") {
		t.Errorf("%v", err)
	}
	if !slices.Contains(l.asked, "/v1/pre-reboot") || !slices.Contains(l.asked, "/v1/steady-state") {
		t.Errorf("%q", l.asked)
	}
}

func TestDirectory(t *testing.T) {
	turns(t, spec.Slot{Max: 1, Directory: filepath.Join(t.TempDir(), "slots")}, "all 1 slots of")
}

// turns holds a slot, again as after a reboot, and hands it on.
func turns(t *testing.T, s spec.Slot, full string) {
	t.Helper()
	a, b := Holder{Node: "a", Ask: slotPost}, Holder{Node: "b", Ask: slotPost}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(b.Release(t.Context(), "storage", s)) // not held
	must(a.Take(t.Context(), "storage", s))
	must(a.Take(t.Context(), "storage", s))
	if err := b.Take(t.Context(), "storage", s); err == nil || !strings.Contains(err.Error(), full) {
		t.Errorf("%v", err)
	}
	must(b.Release(t.Context(), "storage", s)) // it is not b's
	if err := b.Take(t.Context(), "storage", s); err == nil {
		t.Error("b took what a holds")
	}
	must(a.Release(t.Context(), "storage", s))
	must(b.Take(t.Context(), "storage", s))
	if err := a.Take(t.Context(), "storage", s); err == nil {
		t.Error("a took what b holds")
	}
}

// A server of files that says of a link twice that it is there, as where its first answer was lost,
// has a node take the next slot, too. Both are given back.
func TestANodeThatHasTwoSlots(t *testing.T) {
	slot := spec.Slot{Max: 2, Directory: t.TempDir()}
	dir := filepath.Join(slot.Directory, "g")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0", "1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("a\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := (Holder{Node: "a"}).Release(t.Context(), "g", slot); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"b", "c"} {
		if err := (Holder{Node: node}).Take(t.Context(), "g", slot); err != nil {
			t.Error(err)
		}
	}
}

// TestNoServer waits for none, and names it.
func TestNoServer(t *testing.T) {
	stop := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer silent.Close()
	defer close(stop)
	gone := httptest.NewServer(nil)
	gone.Close()
	for url, c := range map[string]struct {
		within time.Duration
		want   string
	}{silent.URL: {200 * time.Millisecond, "does not answer within 200ms"}, gone.URL: {time.Minute, gone.URL + ": "}} {
		began := time.Now()
		err := Holder{Node: "a", Ask: slotPost, Timeout: c.within}.Take(t.Context(), "g", spec.Slot{Max: 1, FleetLock: url})
		if err == nil || !strings.Contains(err.Error(), c.want) || time.Since(began) > time.Minute {
			t.Errorf("%s: %v after %v", url, err, time.Since(began))
		}
	}
	if err := (Holder{Node: "a"}).Take(t.Context(), "g", spec.Slot{Max: 1, FleetLock: gone.URL}); !errors.Is(err, errNoAsk) {
		t.Error(err)
	}
	for name, s := range map[string]spec.Slot{"none": {Max: 1}, "both": {Max: 1, Directory: "/x", FleetLock: "http://h"}, "scheme": {Max: 1, FleetLock: "file:///x"}, "many": {Max: 0, Directory: "/x"}, "relative": {Max: 1, Directory: "x"}} {
		if err := (Holder{Node: "a"}).Take(t.Context(), "g", s); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if err := (Holder{Node: "a"}).Take(t.Context(), "../g", spec.Slot{Max: 1, Directory: t.TempDir()}); err == nil {
		t.Error("a group outside of its directory")
	}
}

// TestADirectoryWhoseServerIsGone is not waited for either.
func TestADirectoryWhoseServerIsGone(t *testing.T) {
	s := spec.Slot{Max: 1, Directory: stalled.Dir(t) + "/slots"}
	h := Holder{Node: "a", Timeout: 100 * time.Millisecond}
	for range 3 {
		for what, err := range map[string]error{"take": h.Take(t.Context(), "g", s), "release": h.Release(t.Context(), "g", s)} {
			if err == nil || err.Error() != s.Directory+" does not answer within 100ms" {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// TestManyAtOnce never lets more have a slot than there are.
func TestManyAtOnce(t *testing.T) {
	s := spec.Slot{Max: 3, Directory: t.TempDir()}
	var all sync.WaitGroup
	var lock sync.Mutex
	live, most, done := 0, 0, 0
	for n := range 12 {
		all.Go(func() {
			h := Holder{Node: fmt.Sprint("n", n)}
			for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if h.Take(context.Background(), "g", s) != nil {
					continue
				}
				lock.Lock()
				live++
				most, done = max(most, live), done+1
				lock.Unlock()
				time.Sleep(2 * time.Millisecond)
				lock.Lock()
				live--
				lock.Unlock()
				if err := h.Release(context.Background(), "g", s); err != nil {
					t.Error(err)
				}
				return
			}
		})
	}
	all.Wait()
	if most > 3 || done != 12 {
		t.Errorf("%d at once, %d of 12", most, done)
	}
	if left, err := os.ReadDir(filepath.Join(s.Directory, "g")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
