// SPDX-License-Identifier: Apache-2.0

// Package slot takes and gives back a node's turn among the nodes of its group, so
// that no more of them are disturbed at once than their site allows.
//
// Who counts is one of two: a server that speaks FleetLock, the protocol of Zincati
// and airlock (https://coreos.github.io/zincati/development/fleetlock/protocol/), or a
// directory that the nodes share. Both know a holder by its name: taking a slot twice,
// as after a reboot, takes one, and giving back what is not held is no error. A slot
// can only delay: windows stay what they are, whatever a server says. The package
// knows no operations and no windows. Package node is the only caller.
package slot

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// patience is how long a server may take for an answer.
const patience = 5 * time.Second

// Holder takes slots as one node.
type Holder struct {
	Node    string
	Timeout time.Duration // of one request; patience when zero
}

// Take takes a slot of a group, or the one that the node has. An error says why there
// is none now.
func (h Holder) Take(ctx context.Context, group string, s spec.Slot) error {
	if err := check(group, s); err != nil {
		return err
	}
	if s.Directory != "" {
		return h.take(group, s)
	}
	return h.ask(ctx, s.FleetLock+"/v1/pre-reboot", group)
}

// Release gives the node's slot of a group back, if it has one.
func (h Holder) Release(ctx context.Context, group string, s spec.Slot) error {
	if err := check(group, s); err != nil {
		return err
	}
	if s.Directory != "" {
		return h.release(group, s)
	}
	return h.ask(ctx, s.FleetLock+"/v1/steady-state", group)
}

func check(group string, s spec.Slot) error {
	if err := rules.SlotGroup(group); err != nil {
		return err
	}
	return rules.Slot(s)
}

// request is the body of both requests of FleetLock.
type request struct {
	Client client `json:"client_params"`
}

type client struct {
	ID    string `json:"id"`
	Group string `json:"group"`
}

// refusal is the body of an answer that is not 200.
type refusal struct {
	Kind  string `json:"kind"`
	Value string `json:"value"`
}

// maxAnswer caps what is read of an answer.
const maxAnswer = 8 << 10

// ask sends one request. Its answer is that of the address itself: it is not followed
// elsewhere.
func (h Holder) ask(ctx context.Context, url, group string) error {
	timeout := h.Timeout
	if timeout == 0 {
		timeout = patience
	}
	late := fmt.Errorf("%s does not answer within %v", url, timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	body, err := json.Marshal(request{client{h.Node, group}})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("fleet-lock-protocol", "true")
	r.Header.Set("Content-Type", "application/json")
	c := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := c.Do(r)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), late):
		return late
	case err != nil:
		return err
	}
	defer answer.Body.Close() // only read
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		text = nil // the code says enough
	}
	return fmt.Errorf("%s answers %d%s", url, answer.StatusCode, reason(text))
}

// reason is what a server says of a refusal: as the protocol has it, or as text.
func reason(text []byte) string {
	var why refusal
	said := string(bytes.TrimSpace(text))
	if json.Unmarshal(text, &why) == nil && why.Value != "" {
		said = why.Value
	}
	if said == "" {
		return ""
	}
	const most = 200
	if r := []rune(said); len(r) > most {
		said = string(r[:most]) + "…"
	}
	return ": " + plain.Line(said)
}
