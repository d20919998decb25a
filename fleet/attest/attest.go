// SPDX-License-Identifier: Apache-2.0

// Package attest says whether a machine booted what its fleet gave it: of a quote by the
// machine's TPM, of the logs that come with it, and of what is known of loaders and of
// the node's generations.
//
// Everything of a quote is a stranger's word but for what the TPM has signed. The logs only explain
// the registers: they count once they give what the TPM quoted. A [Desk] asks the nodes of a service,
// which keeps what comes of it. What "attested" covers is in docs/adr/0037-measured-boot.md, and what
// follows while nodes report in 0039-a-node-is-attested.md. fleet/server, fleet/service and cmd/caisson
// import it.
package attest

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"os"
	"slices"
	"strings"

	"github.com/google/go-tpm/tpm2"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// Register is the content of one register of SHA-256.
type Register = [sha256.Size]byte

// Known holds the facts that a verifier has of a machine.
type Known struct {
	Node     string
	Like     []view.Machine      // each is as the machine may be
	Loaders  map[Register]string // what loaders leave in the stub's register, and their names
	Programs map[Register]bool   // of these loaders, as firmware measures them into register 4
	Roots    map[Root]Layer      // what the node was given
	Runs     *Running            // what the node says that it runs; nil says nothing
	EK       []byte              // the nonce was sealed to it and to the key of the quote; nil: it was not sealed
}

// Running names an overlay and a layer by their digests.
type Running struct{ Overlay, Layer string }

// AddLoader adds what a loader leaves in the stub's register, and its programs.
func (k *Known) AddLoader(name string, stub Register, programs ...Register) {
	if k.Loaders == nil {
		k.Loaders, k.Programs = map[Register]string{}, map[Register]bool{}
	}
	k.Loaders[stub] = name
	for _, p := range programs {
		k.Programs[p] = true
	}
}

// AddLoaders adds the loaders that another one knows.
func (k *Known) AddLoaders(of Known) {
	for stub, name := range of.Loaders {
		k.AddLoader(name, stub, slices.Collect(maps.Keys(of.Programs))...)
	}
}

// addAccepted adds what somebody accepted, with its loader.
func (k *Known) addAccepted(m *view.Machine) {
	if !m.Whole(len(code)) {
		return
	}
	k.Like = append(k.Like, *m)
	stub := Register(m.Stub)
	k.AddLoader(cmp.Or(k.Loaders[stub], "the accepted one"), stub)
	for _, p := range m.Programs {
		k.Programs[Register(p)] = true
	}
}

// Accept returns what a quote shows of a machine, for somebody who accepts that.
func (k Known) Accept(q *spec.Quote) (view.Machine, error) {
	nonce, err := hex.DecodeString(q.Nonce)
	if err == nil {
		err = signed(q, nonce)
	}
	if err != nil {
		return view.Machine{}, err
	}
	registers := registersOf(q)
	b, err := replay(q.Firmware, registers, k.Programs)
	return k.machine(digest.Of(q.Key), registers, b), err
}

// code are the registers of the programs that run before and beside the loader, each of which could
// extend the stub's register in its place. They are as they were accepted; of the settings in the others
// nothing follows. A known loader is left out of the one that it is in.
var code = []struct {
	register uint
	of       string
}{{0, "the firmware"}, {2, "option ROMs"}, {manager, "what the firmware started"}, {7, "the keys of Secure Boot"}}

// machine returns what is accepted of one.
func (k Known) machine(key string, registers map[uint]Register, b begun) view.Machine {
	m := view.Machine{Key: key, EK: k.EK, Stub: b.stub[:]}
	for _, c := range code {
		r := registers[c.register]
		if c.register == manager {
			r = b.others
		}
		m.Code = append(m.Code, r[:])
	}
	for _, p := range b.passed {
		m.Programs = append(m.Programs, p[:])
	}
	return m
}

// like says what differs from all machines that it may be like, of its key.
func (k Known) like(m view.Machine) error {
	err := fmt.Errorf("nobody has accepted the machine's key %s", m.Key)
	for _, a := range k.Like {
		if !isLike(m, a) || !a.Whole(len(code)) {
			if len(a.EK) > 0 {
				err = fmt.Errorf("the machine's key %s is not bound to the TPM of the accepted endorsement key %s", m.Key, digest.Of(a.EK))
			}
			continue
		}
		err = nil
		for i, c := range code {
			if err == nil && !bytes.Equal(m.Code[i], a.Code[i]) {
				err = fmt.Errorf("unknown event: %s, of register %d, differs from what was accepted", c.of, c.register)
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

// Layer holds the digests of what a layer is started by, and of the overlays that make a root on it.
type Layer struct {
	Kernel, Initrd string
	Overlays       []string
}

// Verdict is the result of a quote.
type Verdict struct {
	Node      string          `json:"node"`
	Attested  bool            `json:"attested"`
	Why       string          `json:"why,omitempty"`    // why it is not
	Key       string          `json:"key,omitempty"`    // of the machine, "" where its signature does not hold
	Loader    string          `json:"loader,omitempty"` // the known one that the machine was started by
	Events    []spec.Measured `json:"events"`           // what it went on with, as the register has it
	Registers []string        `json:"registers"`        // 0 to 7, hexadecimal: firmware, its settings, and what it started

	Machine *view.Machine `json:"-"` // what somebody may accept; nil where signature or firmware's log do not hold
}

// Write prints for people what a machine has booted; the error of who asked says why it is not attested.
func (v *Verdict) Write(w io.Writer) {
	if v.Attested {
		cli.Printf(w, "attested  %s, key %s, loader %s\n", v.Node, v.Key, v.Loader)
	}
	for _, m := range v.Events {
		cli.Printf(w, "%-11s layer %s, core %s\n", m.Event, m.Layer, m.Core)
		if m.Event == spec.MeasuredKexec {
			cli.Printf(w, "            %s\n", strings.TrimSpace(m.Line))
		}
	}
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
	registers := registersOf(q)
	for r := range uint(8) {
		text := registers[r]
		v.Registers = append(v.Registers, hex.EncodeToString(text[:]))
	}
	boot, err := replay(q.Firmware, registers, known.Programs)
	if err != nil {
		return err
	}
	m := known.machine(v.Key, registers, boot)
	v.Machine = &m
	events, last, err := spec.Replay(Register{}, []byte(q.Log))
	if err != nil {
		return err
	}
	if last != registers[spec.PCR] {
		return fmt.Errorf("the log of what was measured is not what register %d has", spec.PCR)
	}
	v.Events = append(v.Events, events...)
	v.Loader = known.Loaders[boot.stub]
	if err := known.like(m); err != nil {
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
	return known.running(events[len(events)-1])
}

// running returns why the last event is not that of the root which the node says that it runs.
func (k Known) running(m spec.Measured) error {
	if m.Event == spec.MeasuredKexec {
		return errors.New("nothing was measured of the root")
	}
	if r := k.Runs; r != nil && (m.Layer != r.Layer || !slices.Contains(k.Roots[Root{m.Layer, m.Core}].Overlays, r.Overlay)) {
		return fmt.Errorf("it reports overlay %s on layer %s, and its root is of core %s on layer %s", r.Overlay, r.Layer, m.Core, m.Layer)
	}
	return nil
}

// registersOf returns what a signed quote has in its registers.
func registersOf(q *spec.Quote) map[uint]Register {
	registers := map[uint]Register{}
	for i, r := range spec.Quoted {
		registers[r] = Register(q.Registers[i])
	}
	return registers
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
	if !ecdsa.Verify(ec, hash[:], new(big.Int).SetBytes(ecdsaSignature.SignatureR.Buffer),
		new(big.Int).SetBytes(ecdsaSignature.SignatureS.Buffer)) {
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

// AddFiles adds loaders by their files, of which measure says what they leave in a TPM.
func (k *Known) AddFiles(names []string, measure func(image []byte) (stub Register, programs []Register, err error)) error {
	for _, name := range names {
		image, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("--loader: %w", err)
		}
		stub, programs, err := measure(image)
		if err != nil {
			return cli.WithHint(fmt.Errorf("--loader %s: %w", name, err), "'caisson image SITE --out FILE.efi' writes one")
		}
		k.AddLoader(name, stub, programs...)
	}
	return nil
}

// AcceptFiles adds machines by quotes of them that were accepted.
func (k *Known) AcceptFiles(names []string) error {
	for _, name := range names {
		accepted, err := ReadQuote(name)
		if err != nil {
			return fmt.Errorf("--like: %w", err)
		}
		one, err := k.Accept(accepted)
		if err != nil {
			return fmt.Errorf("--like %s: %w", name, err)
		}
		k.Like = append(k.Like, one)
	}
	return nil
}

// ReadQuote reads a quote, or says why it is none.
func ReadQuote(name string) (*spec.Quote, error) {
	data, err := ownfiles.ReadPublic(name, spec.MaxQuote)
	if err != nil {
		return nil, err
	}
	q, err := spec.DecodeQuote(data)
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("%s: %w", name, err), "'caisson-agent quote --nonce HEX -o json' prints one")
	}
	return q, nil
}
