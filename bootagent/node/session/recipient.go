// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"slices"

	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// ErrNoKey is for a node that keeps no key of secrets: its state is in memory, or its disk
// takes no writes.
var ErrNoKey = errors.New("this node keeps no key of secrets")

// keys are the keys of secrets of this node.
func (n *Session) keys() secrets.Keys {
	return secrets.Keys{State: n.Folder.Path(), Memory: n.Path(paths.RunUnlocked), TPM: tpm.Of(n.Options.Root)}
}

// keepsKey reports whether a key that is made now would last.
func (n *Session) keepsKey() bool {
	return n.Lock != nil && n.Scopes.Disk != "" && !n.Boot.ReadOnly && len(n.Boot.DiskTrouble) == 0
}

// ensureRecipient makes the key that opens this node's secrets, where it would last, and ends
// a rotation that is over. Without a key the node works all the same, but has no secrets.
func (n *Session) ensureRecipient() {
	if !n.keepsKey() {
		return
	}
	key, err := n.keys().Ensure(n.Say)
	if err == nil && key.Before() != "" {
		err = n.endRotation(key)
	}
	if _, locked := errors.AsType[*secrets.LockedError](err); err != nil && !locked { // who opens a secret says that
		n.Say("%v", err)
	}
}

// identity is the key that opens this node's secrets, nil where it has none that lasts.
func (n *Session) identity() (secrets.Identity, error) {
	if n.Scopes.Disk == "" {
		return nil, nil
	}
	return n.keys().Read()
}

// Recipient returns the key to seal secrets to for this node, "" where it has no key that
// lasts, and whether that is sealed to the machine's TPM.
func (n *Session) Recipient() (of string, sealed bool) {
	key, err := n.identity()
	if err != nil || key == nil {
		return "", false // who opens a secret says why
	}
	return key.Recipient(), key.Sealed()
}

// Recipients are the recipient of this node and, while a key is rotated, the one before.
func (n *Session) Recipients() (now, before string, err error) {
	if n.Boot.Disk == "" && n.Boot.Mode != spec.ModeAttached {
		return "", "", ErrNoKey
	}
	key, err := n.identity()
	if err == nil && key == nil {
		err = errors.New("there is no key of secrets yet: the first apply makes it")
	}
	if err != nil {
		return "", "", err
	}
	return key.Recipient(), key.Before(), nil
}

// RotateRecipient makes the next key, where no rotation is under way.
func (n *Session) RotateRecipient() error {
	if !n.keepsKey() {
		return ErrNoKey
	}
	_, err := n.keys().Rotate(n.Say)
	return err
}

// endRotation removes the key before, once what runs well is sealed to the next one, and
// nothing is sealed to the one before that the node goes on or back to by itself.
func (n *Session) endRotation(key secrets.Identity) error {
	if n.Tracker == nil {
		return nil
	}
	s, err := n.Owner.State()
	if err != nil {
		return err
	}
	best := s.Best()
	if best == nil {
		return nil
	}
	if is, err := n.isSealed(best, key.Recipient()); !is || err != nil {
		return err
	}
	for _, g := range s.Generations() {
		if needed, err := n.isSealed(g, key.Before()); needed || err != nil {
			return err
		}
	}
	if err := n.keys().Settle(); err != nil {
		return err
	}
	n.Say("the key of secrets is rotated: %s is removed", key.Before())
	return nil
}

// isSealed reports whether a generation has secrets for a recipient. One that is refused does
// not run, so what it has says nothing.
func (n *Session) isSealed(g *state.Generation, to string) (bool, error) {
	found, err := n.Tracker.Recall(g)
	switch {
	case refusal.Of(err) != "":
		return false, nil
	case err != nil:
		return false, err
	}
	return slices.ContainsFunc(found.Overlay.Secrets, func(s spec.Secret) bool { return s.To == to }), nil
}
