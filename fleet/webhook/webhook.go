// SPDX-License-Identifier: Apache-2.0

// Package webhook tells others what changed in a fleet: signed messages to URLs, by the Standard
// Webhooks specification, version 1. A message that is not taken is sent again, with longer and longer
// waits, for a day; messages that wait are bounded, and the oldest goes first.
//
// What waits ends with the process: who must not miss anything asks the service. Nobody tells it
// what to do. Only fleet/service imports it.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
)

// Event is the content of a message.
type Event struct {
	Type string    `json:"type"`
	At   time.Time `json:"timestamp"`
	Data any       `json:"data"`
}

// message is an event that waits for one receiver. Its id stays over all attempts.
type message struct {
	id   string
	made time.Time
	body []byte
}

// Receiver is one URL, and what waits for it.
type Receiver struct {
	url    string // it may hold a secret itself: logs name its host
	host   string
	secret []byte
	say    func(format string, args ...any)
	http   *http.Client
	now    func() time.Time
	wait   func(context.Context, time.Duration) // until then, or the end

	mu      sync.Mutex
	waiting []message
	dropped int
	more    chan struct{} // has a value where something waits
}

// Bounds of a receiver.
const (
	mostWaiting = 1000
	patience    = 10 * time.Second // for an answer
	first       = time.Second      // before the second attempt
	longest     = time.Minute      // between two attempts
	giveUp      = 24 * time.Hour   // after the event
	secretWord  = "whsec_"
)

// ParseSecret reads a secret as the specification writes it: whsec_ and at least 24 bytes in base64.
func ParseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), secretWord)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 {
		return nil, errors.New("not " + secretWord + " and at least 24 bytes in base64")
	}
	return key, nil
}

// To returns a receiver. Its URL was judged before.
func To(at *url.URL, secret []byte, say func(format string, args ...any)) *Receiver {
	return &Receiver{url: at.String(), host: at.Host, secret: secret, say: say, now: time.Now, more: make(chan struct{}, 1),
		http: &http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		wait: func(ctx context.Context, d time.Duration) {
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
		}}
}

// Tell has an event sent, and waits for nothing.
func (r *Receiver) Tell(e Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) >= mostWaiting {
		r.waiting = r.waiting[1:]
		r.dropped++
	}
	r.waiting = append(r.waiting, message{"msg_" + rand.Text(), r.now(), body})
	select {
	case r.more <- struct{}{}:
	default: // it was told already
	}
	return nil
}

// Run sends what waits until ctx ends.
func (r *Receiver) Run(ctx context.Context) {
	for ctx.Err() == nil {
		m, ok := r.next()
		if !ok {
			select {
			case <-ctx.Done():
			case <-r.more:
			}
			continue
		}
		r.deliver(ctx, m)
	}
}

func (r *Receiver) next() (m message, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return m, false
	}
	m, r.waiting = r.waiting[0], r.waiting[1:]
	return m, true
}

// deliver sends a message until it is taken or too old.
func (r *Receiver) deliver(ctx context.Context, m message) {
	failed := false
	for pause := first; ctx.Err() == nil; pause = min(2*pause, longest) {
		err := r.send(ctx, m)
		if err == nil {
			if failed {
				r.say("webhook %s takes messages again%s", r.host, r.lost())
			}
			return
		}
		if !failed {
			r.say("webhook %s: %v; it is tried again", r.host, err)
		}
		failed = true
		if r.now().Add(pause).After(m.made.Add(giveUp)) {
			r.say("webhook %s: message %s is given up after %v", r.host, m.id, giveUp)
			return
		}
		r.wait(ctx, pause)
	}
}

// lost says how many messages had no room since it was last said.
func (r *Receiver) lost() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.dropped
	if r.dropped = 0; n == 0 {
		return ""
	}
	return fmt.Sprintf("; the oldest %d had no room among %d", n, mostWaiting)
}

func (r *Receiver) send(ctx context.Context, m message) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(m.body))
	if err != nil {
		return err
	}
	at := strconv.FormatInt(r.now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", m.id)
	req.Header.Set("Webhook-Timestamp", at)
	req.Header.Set("Webhook-Signature", signature(r.secret, m.id, at, m.body))
	resp, err := r.http.Do(req)
	if err != nil {
		if of := new(url.Error); errors.As(err, &of) {
			err = of.Err // without the URL
		}
		return err
	}
	defer resp.Body.Close()                                      // only read
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10)) // so that the connection is used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	return nil
}

// signature is version 1 of the specification: HMAC-SHA-256 of id, time and body.
func signature(secret []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body) // a hash takes everything
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Seen is a fleet at a time.
type Seen struct {
	At       time.Time
	Nodes    map[string]Is     // by name
	Rollouts map[string]string // phase by name
	Acts     []audit.Row       // since the time before
}

// Is is the condition of a node, as `caisson fleet status` has it.
type Is struct{ Condition, Why string }

// Fleet is what is watched.
type Fleet interface {
	Writes() bool    // this instance is the one that tells
	Elsewhere() bool // another one is; neither is one while the database is away
	// See returns the fleet as it is, the rows of the audit log after one, and the last row; below 0
	// no rows are wanted.
	See(ctx context.Context, after int64) (now Seen, last int64, err error)
}

// Watch compares a fleet with what it was at the start and then at each tick, until ctx ends. What it
// was before is not known, and not told.
func Watch(ctx context.Context, f Fleet, to []*Receiver, ticks <-chan time.Time, say func(format string, args ...any)) {
	for _, r := range to {
		go r.Run(ctx)
	}
	before, last := Seen{}, int64(-1)
	for {
		if !f.Writes() {
			if f.Elsewhere() {
				last = -1
			}
		} else if now, seq, err := f.See(ctx, last); err != nil {
			say("webhook: %v", err)
		} else {
			if last >= 0 {
				tell(to, Changes(before, now), say)
			}
			before, last = now, seq
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

func tell(to []*Receiver, events []Event, say func(format string, args ...any)) {
	for _, e := range events {
		for _, r := range to {
			if err := r.Tell(e); err != nil {
				say("%v", err)
			}
		}
	}
}

// changed is a node in nodes.changed.
type changed struct {
	Node string `json:"node"`
	From string `json:"from"` // "" is a new node
	To   string `json:"to"`   // "" is one that is gone
	Why  string `json:"why,omitempty"`
}

// mostListed is how many nodes or rows one event lists: all of a hall may change in one moment.
const mostListed = 100

// Changes returns what differs between two times: at most one event of each type.
//
//	nodes.changed    {changed: [{node, from, to, why}], more, conditions: {condition: nodes}}
//	rollout.changed  {changed: [{rollout, from, to}]}
//	audit.added      {rows: [rows of the audit log], more}
func Changes(before, now Seen) (events []Event) {
	say := func(kind string, data any) {
		events = append(events, Event{kind, now.At.UTC().Truncate(time.Second), data})
	}
	if nodes, conditions := compareNodes(before, now); len(nodes) > 0 {
		say("nodes.changed", map[string]any{"changed": nodes[:min(len(nodes), mostListed)],
			"more": max(0, len(nodes)-mostListed), "conditions": conditions})
	}
	var moved []map[string]string
	for _, name := range names(before.Rollouts, now.Rollouts) {
		if from, to := before.Rollouts[name], now.Rollouts[name]; from != to {
			moved = append(moved, map[string]string{"rollout": name, "from": from, "to": to})
		}
	}
	if len(moved) > 0 {
		say("rollout.changed", map[string]any{"changed": moved})
	}
	if n := len(now.Acts); n > 0 {
		say("audit.added", map[string]any{"rows": now.Acts[:min(n, mostListed)], "more": max(0, n-mostListed)})
	}
	return events
}

func compareNodes(before, now Seen) (all []changed, conditions map[string]int) {
	conditions = map[string]int{}
	for _, is := range now.Nodes {
		conditions[is.Condition]++
	}
	for _, name := range names(before.Nodes, now.Nodes) {
		if was, is := before.Nodes[name], now.Nodes[name]; was.Condition != is.Condition {
			all = append(all, changed{name, was.Condition, is.Condition, is.Why})
		}
	}
	return all, conditions
}

// names lists the keys of two maps, sorted.
func names[T any](a, b map[string]T) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}
