// SPDX-License-Identifier: Apache-2.0

// Package attest says whether a machine booted what its fleet gave it: of a quote by the
// machine's TPM, of the logs that come with it, and of what is known of loaders and of
// the node's generations.
//
// Everything of a quote is a stranger's word but for what the TPM has signed. The logs only explain
// the registers: they count once they give what the TPM quoted. It asks no node, and keeps nothing;
// what "attested" covers is in docs/adr/0037-measured-boot.md. cmd/caisson imports it.
package attest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// Register is the content of one register of SHA-256.
type Register = [sha256.Size]byte

// Known is what a verifier knows of a machine.
type Known struct {
	Node    string
	Like    []Accepted          // earlier quotes of this machine
	Loaders map[Register]string // what loaders leave in the stub's register, and their names
	Roots   map[Root]Layer      // what the node was given
}

// Accepted is of a quote that somebody has accepted, at a time when the machine was known to be
// what it should.
type Accepted struct {
	Key       string   // digest
	Registers [][]byte // in the order of spec.Quoted
}

// Accept reads a quote that somebody has accepted.
func Accept(q *spec.Quote) (Accepted, error) {
	nonce, err := hex.DecodeString(q.Nonce)
	if err == nil {
		err = signed(q, nonce)
	}
	return Accepted{digest.Of(q.Key), q.Registers}, err
}

// code are the registers of the programs that run before and beside the loader, each of which could
// extend the stub's register in its place. They are as they were accepted; of the settings in the others
// nothing follows.
var code = map[uint]string{0: "the firmware", 2: "option ROMs", 4: "what the firmware started", 7: "the keys of Secure Boot"}

// like says what differs from all accepted quotes by the machine's key.
func (k Known) like(key string, registers map[uint]Register) error {
	err := fmt.Errorf("nobody has accepted the machine's key %s", key)
	for _, a := range k.Like {
		if a.Key != key {
			continue
		}
		err = nil
		for i, r := range spec.Quoted {
			if what := code[r]; what != "" && err == nil && registers[r] != Register(a.Registers[i]) {
				err = fmt.Errorf("unknown event: %s, of register %d, differs from what was accepted", what, r)
			}
		}
		if err == nil {
			return nil
		}
	}
	return err
}

// Root is what a node can enter: the digests of a layer and of an overlay's core on it.
type Root struct{ Layer, Core string }

// Layer holds the digests of what a layer is started by.
type Layer struct{ Kernel, Initrd string }

// Verdict is what a quote shows.
type Verdict struct {
	Node      string          `json:"node"`
	Attested  bool            `json:"attested"`
	Why       string          `json:"why,omitempty"`    // why it is not
	Key       string          `json:"key,omitempty"`    // of the machine, "" where its signature does not hold
	Loader    string          `json:"loader,omitempty"` // the known one that the machine was started by
	Events    []spec.Measured `json:"events"`           // what it went on with, as the register has it
	Registers []string        `json:"registers"`        // 0 to 7, hexadecimal: firmware, its settings, and what it started
}

// Verify says what a quote over a nonce shows. It decides by the first thing that is wrong.
func Verify(q *spec.Quote, nonce []byte, known Known) *Verdict {
	v := &Verdict{Node: known.Node, Events: []spec.Measured{}, Registers: []string{}}
	if err := v.verify(q, nonce, known); err != nil {
		v.Why = err.Error()
		return v
	}
	v.Attested = true
	return v
}

func (v *Verdict) verify(q *spec.Quote, nonce []byte, known Known) error {
	if err := signed(q, nonce); err != nil {
		return err
	}
	v.Key = digest.Of(q.Key)
	registers := map[uint]Register{}
	for i, r := range spec.Quoted {
		registers[r] = Register(q.Registers[i])
		if r <= 7 {
			v.Registers = append(v.Registers, fmt.Sprintf("%x", q.Registers[i]))
		}
	}
	boot, err := replay(q.Firmware, registers)
	if err != nil {
		return err
	}
	events, last, err := spec.Replay(boot.own, []byte(q.Log))
	if err != nil {
		return err
	}
	if last != registers[spec.PCR] {
		return fmt.Errorf("the log of what was measured is not what register %d has", spec.PCR)
	}
	v.Events = append(v.Events, events...)
	v.Loader = known.Loaders[boot.stub]
	if err := known.like(v.Key, registers); err != nil {
		return err
	}
	switch {
	case boot.stub == Register{}:
		return errors.New("kernel not measured by a UKI")
	case v.Loader == "":
		return fmt.Errorf("unknown event: a loader of which register 11 is %x", boot.stub)
	case len(events) == 0:
		return errors.New("nothing was measured of what the loader went on with")
	}
	for _, m := range events {
		if err := known.event(m); err != nil {
			return fmt.Errorf("unknown event: %w", err)
		}
	}
	if events[len(events)-1].Event == spec.MeasuredKexec {
		return errors.New("nothing was measured of the root")
	}
	return nil
}

// event returns why an event is not one of this node, nil where it is.
func (k Known) event(m spec.Measured) error {
	layer, ok := k.Roots[Root{m.Layer, m.Core}]
	switch {
	case !slices.Contains([]spec.MeasuredEvent{spec.MeasuredKexec, spec.MeasuredStack, spec.MeasuredSoftReboot}, m.Event):
		return fmt.Errorf("%.40q", m.Event)
	case !ok:
		return fmt.Errorf("%s: this node was not given the core %.80s on layer %.80s", m.Event, m.Core, m.Layer)
	case m.Event == spec.MeasuredKexec && m.Kernel != layer.Kernel:
		return fmt.Errorf("%s: kernel %.80s is not that of layer %s", m.Event, m.Kernel, m.Layer)
	case m.Event == spec.MeasuredKexec && m.Initrd != layer.Initrd:
		return fmt.Errorf("%s: initrd %.80s is not that of layer %s", m.Event, m.Initrd, m.Layer)
	}
	return nil
}

// signed holds that a key which never leaves a TPM has signed the registers over the nonce.
func signed(q *spec.Quote, nonce []byte) error {
	public, err := tpm2.Unmarshal[tpm2.TPMTPublic](q.Key)
	if err != nil {
		return fmt.Errorf("the machine's key: %w", err)
	}
	if a := public.ObjectAttributes; !a.FixedTPM || !a.FixedParent || !a.Restricted || !a.SignEncrypt || a.Decrypt || !a.SensitiveDataOrigin {
		return errors.New("the machine's key may sign what the TPM has not said")
	}
	key, err := tpm2.Pub(*public)
	if err != nil {
		return fmt.Errorf("the machine's key: %w", err)
	}
	ec, ok := key.(*ecdsa.PublicKey)
	if !ok {
		return fmt.Errorf("the machine's key is a %T, not of P-256", key)
	}
	signature, err := tpm2.Unmarshal[tpm2.TPMTSignature](q.Signature)
	if err != nil {
		return fmt.Errorf("the signature: %w", err)
	}
	ecdsaSignature, err := signature.Signature.ECDSA()
	if err != nil {
		return fmt.Errorf("the signature: %w", err)
	}
	hash := sha256.Sum256(q.Attest)
	if !ecdsa.Verify(ec, hash[:], new(big.Int).SetBytes(ecdsaSignature.SignatureR.Buffer), new(big.Int).SetBytes(ecdsaSignature.SignatureS.Buffer)) {
		return errors.New("the signature does not hold")
	}
	attest, err := tpm2.Unmarshal[tpm2.TPMSAttest](q.Attest)
	if err != nil {
		return fmt.Errorf("what is signed: %w", err)
	}
	if attest.Magic != tpm2.TPMGeneratedValue {
		return errors.New("what is signed was not said by a TPM")
	}
	if !bytes.Equal(attest.ExtraData.Buffer, nonce) {
		return errors.New("it is the answer to another nonce")
	}
	said, err := attest.Attested.Quote()
	if err != nil {
		return fmt.Errorf("what is signed is not a quote: %w", err)
	}
	want := tpm2.TPMSPCRSelection{Hash: tpm2.TPMAlgSHA256, PCRSelect: tpm2.PCClientCompatible.PCRs(spec.Quoted...)}
	if s := said.PCRSelect.PCRSelections; len(s) != 1 || s[0].Hash != want.Hash || !bytes.Equal(s[0].PCRSelect, want.PCRSelect) {
		return errors.New("other registers are quoted")
	}
	if len(q.Registers) != len(spec.Quoted) || slices.ContainsFunc(q.Registers, func(r []byte) bool { return len(r) != sha256.Size }) {
		return errors.New("the registers are not whole")
	}
	if sum := sha256.Sum256(slices.Concat(q.Registers...)); !bytes.Equal(sum[:], said.PCRDigest.Buffer) {
		return errors.New("the registers are not those that were signed")
	}
	return nil
}
