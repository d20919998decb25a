// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"slices"

	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/sandbox/rehearsal"
)

// stating is where the signed statement of a rehearsal goes, and who signs it.
type stating struct {
	file, attest string
	push         bool
	passphrase   keys.Passphrase

	key crypto.Signer // nil where nothing is stated
}

func (x *stating) flags(fs *pflag.FlagSet) {
	fs.StringVar(&x.file, "statement", "", "write what was found to `FILE`, as a signed statement, whatever it is")
	fs.BoolVar(&x.push, "push", false, "attach that statement to the layer in the registry, where a Rollout with 'rehearsed' looks for it")
	fs.StringVar(&x.attest, "attest-key", "", "attestation key that signs it: `FILE`, env:NAME, fd:N or command:CMD (the private key beside the site's public one when empty)")
	passphraseFlag(fs, &x.passphrase)
}

// open opens the key where something is to be stated, and refuses before a machine is booted what
// cannot be written, or would count for nothing.
func (x *stating) open(a *app, w *preview.Preview) (err error) {
	if x.file == "" && !x.push {
		return nil
	}
	if x.file != "" {
		if err := writable("--statement", x.file); err != nil {
			return err
		}
	}
	if found := keys.Beside(w.Site.Trust().Attestation); x.attest == "" && len(found) > 0 {
		x.attest = found[0]
		a.say("the statement is signed with %s", x.attest)
	}
	if x.attest == "" {
		return cli.Usage("trust.keys.attestation of the site names whose statements count; 'caisson keys generate' makes keys", "no key to sign a statement with: give --attest-key")
	}
	if x.key, err = keys.Signer(x.attest, &x.passphrase); err != nil {
		return err
	}
	mine, err := sign.NewVerifier(x.key.Public())
	if err == nil && !slices.ContainsFunc(w.Policy.Attestation, func(k sign.Verifier) bool { return k.ID() == mine.ID() }) {
		err = cli.Usage("statements count by the keys in trust.keys.attestation of the site",
			"--attest-key is not an attestation key of the site")
	}
	return err
}

// state signs what a rehearsal found, and brings it where it is to be.
func (x *stating) state(ctx context.Context, a *app, box *sandbox.Box, answer *rehearsal.Answer, o rehearsal.Options) error {
	if x.key == nil {
		return nil
	}
	on, err := box.Machine(ctx)
	if err != nil {
		return err
	}
	r, err := answer.Statement(o.From, o.To, on, version, now())
	if err != nil {
		return err
	}
	bundle, err := r.Sign(x.key)
	if err != nil {
		return err
	}
	if x.file != "" {
		if err := durable.WriteFile(x.file, bundle, 0o644); err != nil {
			return err
		}
	}
	if !x.push {
		return nil
	}
	if err := release.AttachRehearsal(ctx, o.To.From, r.To.Layer, bundle, r.IssuedAt); err != nil {
		return err
	}
	a.say("stated at layer %s: %s", r.To.Layer, r.Result)
	return nil
}
