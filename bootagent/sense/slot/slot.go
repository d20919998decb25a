// SPDX-License-Identifier: Apache-2.0

// Package slot takes and gives back a node's turn among the nodes of its group, so
// that no more of them are disturbed at once than their site allows.
//
// Who counts is one of two: a server that speaks FleetLock, the protocol of Zincati
// and airlock (https://coreos.github.io/zincati/development/fleetlock/protocol/), or a
// directory that the nodes share. Both know a holder by its name: taking a slot twice,
// as after a reboot, takes one, and giving back what is not held is not an error. A slot
// can only delay: windows stay what they are, whatever a server says. The package
// knows no operations and no windows, nor how a server is reached: its caller, package
// post, posts what it is given, and proves who asks where a server wants that.
package slot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// patience is how long a server may take for an answer.
const patience = 15 * time.Second

// Holder takes slots as one node.
type Holder struct {
	Node    string
	Ask     Ask           // of servers; nil where only directories are known
	Timeout time.Duration // of one request; patience when zero
}

// Ask posts a body to a server, and returns nil where it agrees. act is FleetLock's
// word for what is asked, the end of the path.
type Ask func(ctx context.Context, server, act, group string, body []byte) error

// Take takes a slot of a group, or the one that the node has. An error says why there
// is none now.
func (h Holder) Take(ctx context.Context, group string, s spec.Slot) error {
	if err := check(group, s); err != nil {
		return err
	}
	if s.Directory != "" {
		return h.onDisk(ctx, s.Directory, func() error { return h.take(group, s) })
	}
	return h.ask(ctx, s.FleetLock, "pre-reboot", group)
}

// Release gives the node's slot of a group back, if it has one.
func (h Holder) Release(ctx context.Context, group string, s spec.Slot) error {
	if err := check(group, s); err != nil {
		return err
	}
	if s.Directory != "" {
		return h.onDisk(ctx, s.Directory, func() error { return h.release(group, s) })
	}
	return h.ask(ctx, s.FleetLock, "steady-state", group)
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

var errNoAsk = errors.New("no servers are asked here")

// onDisk does something in a directory that nodes share, whose server may be gone.
func (h Holder) onDisk(ctx context.Context, dir string, do func() error) error {
	ctx, cancel, _ := h.patient(ctx, dir) // Within returns it as the cause
	defer cancel()
	return stall.Within(ctx, "slots in "+dir, do)
}

// patient bounds how long who counts may take for an answer; late is why it ends then.
func (h Holder) patient(ctx context.Context, who string) (_ context.Context, cancel func(), late error) {
	timeout := cmp.Or(h.Timeout, patience)
	late = fmt.Errorf("%s does not answer within %v", who, timeout)
	ctx, cancel = context.WithTimeoutCause(ctx, timeout, late)
	return ctx, cancel, late
}

// ask sends one request.
func (h Holder) ask(ctx context.Context, server, act, group string) error {
	if h.Ask == nil {
		return errNoAsk
	}
	ctx, cancel, late := h.patient(ctx, server)
	defer cancel()
	body, err := json.Marshal(request{client{h.Node, group}})
	if err != nil {
		return err
	}
	err = h.Ask(ctx, server, act, group, body)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), late):
		return late
	}
	return fmt.Errorf("%s: %w", server, err)
}
