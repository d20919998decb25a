// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/hex"
	"errors"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

// recipients is the output of recipient -o json.
type recipients struct {
	Recipient string `json:"recipient"`
	Before    string `json:"before,omitempty"`
}

// recipientVerb is recipient and recipient rotate.
func recipientVerb(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "recipient [rotate]")
	what, args := word("", args)
	if err := a.parse(f, args); err != nil {
		return err
	}
	open := node.Read
	switch what {
	case "":
	case "rotate":
		open = node.Open
	default:
		return cli.Usage("recipient, or recipient rotate", "unknown verb %q", "recipient "+what)
	}
	err := a.with(ctx, "recipient", open, func(n *node.Node) error { return a.recipient(n, what == "rotate") })
	if errors.Is(err, node.ErrNoKey) {
		return cli.WithHint(err, "secrets need a state disk that takes writes; without one there is nothing to rotate")
	}
	return err
}

// recipient prints the recipients, after a rotation was begun where rotate says so.
func (a *app) recipient(n *node.Node, rotate bool) error {
	_, under, err := n.Recipients()
	if rotate && !errors.Is(err, node.ErrNoKey) { // nor is one waited for that this boot has not opened
		err = n.RotateRecipient()
	}
	if err != nil {
		return err
	}
	now, before, err := n.Recipients()
	if err != nil {
		return err
	}
	switch {
	case rotate && under != "":
		a.say("a rotation is under way; another one can begin when it is over")
	case rotate:
		a.say("the next key is made: accept its recipient by 'caisson secrets accept SITE NODE --recipient … --replace', and publish")
	}
	if before != "" {
		a.say("%s still opens what is sealed to it; it is removed once nothing is that this node runs or goes back to by itself", before)
	}
	return a.show(recipients{now, before}, func() { cli.Printf(a.out, "%s\n", now) })
}

// quote prints what the machine's TPM says of its registers.
func quote(ctx context.Context, a *app, args []string) error {
	var text string
	f := newFlags(a, "quote --nonce HEX")
	f.StringVar(&text, "nonce", "", "`HEX` of 16 to 32 random bytes, never given before, of who wants to know")
	if err := a.parse(f, args); err != nil {
		return err
	}
	nonce, err := hex.DecodeString(text)
	if err != nil || len(nonce) < spec.MinNonce || len(nonce) > spec.MaxNonce {
		return cli.Usage("'openssl rand -hex 16' makes one", "--nonce %q: 16 to 32 bytes in hexadecimal are wanted", text)
	}
	return printRead(ctx, a, "quote", func(n *node.Node) (*spec.Quote, error) {
		q, err := n.Quote(ctx, nonce)
		if errors.Is(err, tpm.ErrNone) {
			err = cli.WithHint(err, "the firmware's setup may have it switched off")
		}
		return q, err
	}, func(q *spec.Quote) { screen.Quote(a.out, q) })
}
