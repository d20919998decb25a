// SPDX-License-Identifier: Apache-2.0

// Who counts turns is one of two: a server that speaks FleetLock, the protocol of Zincati
// and airlock (https://coreos.github.io/zincati/development/fleetlock/protocol/), or a
// directory that the nodes share. Both know a holder by its name: taking a slot twice,
// as after a reboot, takes one, and giving back what is not held is not an error. A slot
// can only delay: windows stay what they are, whatever a server says.

package post

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// turnPatience is how long a server may take for an answer.
const turnPatience = 15 * time.Second

// Holder takes slots as one node.
type Holder struct {
	Node    string
	Ask     Turn          // of servers; nil where only directories are known
	Timeout time.Duration // of one request; turnPatience when zero
}

// Turn posts a body to a server, and returns nil where it agrees. act is FleetLock's
// word for what is asked, the end of the path.
type Turn func(ctx context.Context, server, act, group string, body []byte) error

// Take takes a slot of a group, or the one that the node has. An error says why there
// is none now.
func (h Holder) Take(ctx context.Context, group string, s spec.Slot) error {
	return h.turn(ctx, group, s, "pre-reboot", h.take)
}

// Release gives the node's slot of a group back, if it has one.
func (h Holder) Release(ctx context.Context, group string, s spec.Slot) error {
	return h.turn(ctx, group, s, "steady-state", h.release)
}

// turn has a slot's server or its directory do an act.
func (h Holder) turn(ctx context.Context, group string, s spec.Slot, act string, onDisk func(string, spec.Slot) error) error {
	if err := cmp.Or(rules.SlotGroup(group), rules.Slot(s)); err != nil {
		return err
	}
	if s.Directory != "" {
		return h.onDisk(ctx, s.Directory, func() error { return onDisk(group, s) })
	}
	return h.ask(ctx, s.FleetLock, act, group)
}

// slotRequest is the body of both requests of FleetLock.
type slotRequest struct {
	Client slotClient `json:"client_params"`
}

type slotClient struct {
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
	timeout := cmp.Or(h.Timeout, turnPatience)
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
	body, _ := json.Marshal(slotRequest{slotClient{h.Node, group}}) // texts marshal
	err := h.Ask(ctx, server, act, group, body)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), late):
		return late
	}
	return fmt.Errorf("%s: %w", server, err)
}

// take makes the first file of 0, 1, … below the group's directory that there is not.
// It is made whole elsewhere and linked, which is one step on a network file system,
// too: a slot never has two holders, nor one without a name.
func (h Holder) take(group string, s spec.Slot) (err error) {
	at := filepath.Join(s.Directory, group)
	var walk safepath.Walk
	defer walk.Close()
	if err := walk.MkdirAll(at); err != nil {
		return err
	}
	d, err := walk.Hold(at)
	if err != nil {
		return err
	}
	defer d.Close() // only held
	dir := safepath.Name(int(d.Fd()))
	if at, err := h.held(dir); err != nil || at != "" {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(h.Node + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	for n := range s.Max {
		err := os.Link(f.Name(), filepath.Join(dir, strconv.FormatInt(n, 10)))
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	names, err := holders(dir)
	if err != nil {
		return err
	}
	by := slices.Sorted(maps.Values(names))
	return fmt.Errorf("all %d slots of %s are held, by %s", s.Max, at, plain.Line(strings.Join(by, ", ")))
}

func (h Holder) release(group string, s spec.Slot) error {
	d, err := safepath.Hold(filepath.Join(s.Directory, group))
	if err != nil {
		return fault.But(err, fs.ErrNotExist)
	}
	defer d.Close() // only held
	// Where the answer to a link was lost, the node has two.
	for {
		at, err := h.held(safepath.Name(int(d.Fd())))
		if err != nil || at == "" {
			return err
		}
		if err := os.Remove(at); err != nil {
			return err
		}
	}
}

// held returns the file of the slot that the node has.
func (h Holder) held(dir string) (string, error) {
	all, err := holders(dir)
	if err != nil {
		return "", err
	}
	for at, name := range all {
		if name == h.Node {
			return at, nil
		}
	}
	return "", nil
}

// maxName caps what is read of a slot's file.
const maxName = 1 << 10

// holders returns who has which file.
func holders(dir string) (map[string]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[string]string{}
	for _, e := range list {
		if _, err := strconv.ParseUint(e.Name(), 10, 32); err != nil || !e.Type().IsRegular() {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, e.Name()), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // given back meanwhile
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(io.LimitReader(f, maxName))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		out[filepath.Join(dir, e.Name())] = strings.TrimSpace(string(data))
	}
	return out, nil
}
