// SPDX-License-Identifier: Apache-2.0

package tpmtest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"io"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// gives gives commands to a TPM.
func gives(t *testing.T, open func() (io.ReadWriteCloser, error), commands func(transport.TPM) error) {
	t.Helper()
	rw, err := open()
	if err == nil {
		err = errors.Join(commands(transport.FromReadWriter(rw)), rw.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// clears has the owner cleared, as the firmware's setup does: each key of the owner is another one then.
func clears(t *testing.T, open func() (io.ReadWriteCloser, error)) {
	t.Helper()
	gives(t, open, func(to transport.TPM) error {
		_, err := tpm2.Clear{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHPlatform, Auth: tpm2.PasswordAuth(nil)}}.Execute(to)
		return err
	})
}

// maker certifies TPMs.
type maker struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newMaker(t *testing.T) maker {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "maker of TPMs"}, NotBefore: time.Unix(0, 0),
		NotAfter: time.Unix(4000000000, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return maker{c, key}
}

// certifies puts a certificate of a TPM's key by a profile into its NV, padded, with a critical name as TPMs' have it.
func (m maker) certifies(t *testing.T, open func() (io.ReadWriteCloser, error), template tpm2.TPMTPublic, index tpm2.TPMHandle) {
	t.Helper()
	gives(t, open, func(to transport.TPM) error {
		made, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHEndorsement, InPublic: tpm2.New2B(template)}.Execute(to)
		if err != nil {
			return err
		}
		if _, err := (tpm2.FlushContext{FlushHandle: made.ObjectHandle}).Execute(to); err != nil {
			return err
		}
		public, err := made.OutPublic.Contents()
		if err != nil {
			return err
		}
		key, err := tpm2.Pub(*public)
		if err != nil {
			return err
		}
		name := []byte{0x30, 0x12, 0xa4, 0x10, 0x30, 0x0e, 0x31, 0x0c, 0x30, 0x0a, 0x06, 0x05, 0x67, 0x81, 0x05, 0x02, 0x02, 0x0c, 0x01, 'm'}
		c := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(4000000000, 0),
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true, Value: name}}}
		der, err := x509.CreateCertificate(rand.Reader, c, m.cert, key, m.key)
		if err != nil {
			return err
		}
		der = append(der, bytes.Repeat([]byte{0xff}, 700)...)
		_, err = tpm2.NVDefineSpace{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHPlatform, Auth: tpm2.PasswordAuth(nil)},
			PublicInfo: tpm2.New2B(tpm2.TPMSNVPublic{NVIndex: index, NameAlg: tpm2.TPMAlgSHA256, DataSize: uint16(len(der)),
				Attributes: tpm2.TPMANV{PPWrite: true, PPRead: true, OwnerRead: true, AuthRead: true, NoDA: true, PlatformCreate: true}})}.Execute(to)
		for at := 0; err == nil && at < len(der); at += 512 {
			is, wrong := tpm2.NVReadPublic{NVIndex: index}.Execute(to)
			if wrong != nil {
				return wrong
			}
			_, err = tpm2.NVWrite{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHPlatform, Auth: tpm2.PasswordAuth(nil)},
				NVIndex: tpm2.NamedHandle{Handle: index, Name: is.NVName}, Data: tpm2.TPM2BMaxNVBuffer{Buffer: der[at:min(at+512, len(der))]}, Offset: uint16(at)}.Execute(to)
		}
		return err
	})
}

// posts has the node n send a quote, as its service does, to the desk; letters gets the nonces that were answered.
func (d *desk) posts(l post.TPM, key string, letters *[]string) error {
	d.Helper()
	d.now = d.now.Add(61 * time.Minute)
	d.node.Received = d.now
	r := &spec.Report{Node: "n", Fleet: "f", BootID: "b1", Overlay: overlay, Layer: "sha256:m", TPM: key}
	d.node.Report = view.NewBrief(r)
	said := error(nil)
	p := &post.Post{TPM: l, Tracker: &track.Tracker{Identity: trust.Identity{Node: "n"}},
		Say: func(format string, args ...any) { said = args[len(args)-1].(error) },
		By: func(_ context.Context, letter post.Letter) error {
			if !strings.HasSuffix(letter.URL, spec.QuotePath) {
				letter.Answer.WriteString(d.Nonce(r))
				return nil
			}
			nonce := letter.Header[spec.NonceHeader]
			again, err := d.Take(nonce, bytes.NewReader(letter.Body))
			letter.Answer.WriteString(again)
			*letters = append(*letters, nonce)
			return err
		}}
	if err := p.Post(d.Context(), spec.Reporting{URL: "https://fleet.example"}, []byte("report")); err != nil {
		d.Fatal(err)
	}
	if said == nil {
		<-d.kept
	}
	return said
}

// shows holds what is known of the node once it has quoted so many times.
func (d *desk) shows(l *tpm.Log, quotes int, word view.Attestation, why string) {
	d.Helper()
	key, err := l.Key()
	if err != nil {
		d.Fatal(err)
	}
	var letters []string
	if err := d.posts(l, key, &letters); err != nil || len(letters) != quotes {
		d.Errorf("%d quotes, %v; want %d", len(letters), err, quotes)
	}
	if is, says := d.node.Attestation(d.now); is != word || !strings.Contains(says, why) {
		d.Errorf("%s: %s; want %s: %s", is, says, word, why)
	}
}

// TestAKeyIsBoundToItsTPM: an operator accepts a TPM with its first key, and another key of that TPM
// needs nobody; another TPM does.
func TestAKeyIsBoundToItsTPM(t *testing.T) {
	open, again := Switched(t)
	boots := func() *tpm.Log {
		t.Helper()
		again()
		l := machine(t, open, usual)
		quoted(t, l, events...)
		return l
	}
	l := boots()
	d := newDesk(t, l)
	d.shows(l, 2, view.NotAccepted, "nobody has accepted")
	if err := d.Accept(t.Context(), "n", d.node.Offers().ID(), "eve"); err != nil {
		t.Fatal(err)
	}
	d.shows(l, 1, view.Attested, "") // the nonce was sealed at once
	ek, key := d.node.Quote.Accepted.EK, d.node.Quote.Accepted.Key

	clears(t, open)
	l = boots()
	d.node.Report = view.NewBrief(d.reports(l))
	if is, why := d.node.Attestation(d.now); is != view.Stale || !strings.Contains(why, "another key of the TPM") {
		t.Errorf("%s: %s", is, why)
	}
	d.shows(l, 2, view.Attested, "")
	if m := d.node.Quote.Accepted; !bytes.Equal(m.EK, ek) || m.Key == key {
		t.Errorf("accepted is key %s, was %s", m.Key, key)
	}
	clears(t, open)
	l = boots()
	d.wants(l, view.Changed, "the machine's key ") // a quote that leaves the TPM out is not bound
	d.shows(l, 2, view.Attested, "")

	other := machine(t, Start(t), usual)
	quoted(t, other, events...)
	d.shows(other, 2, view.Changed, "is not bound to the TPM of the accepted endorsement key "+digest.Of(ek))
	d.shows(l, 1, view.Attested, "")
}

// TestAMachineOfBeforeIsBound: what was accepted without an endorsement key gets it with the next attested quote.
func TestAMachineOfBeforeIsBound(t *testing.T) {
	l := machine(t, Start(t), usual)
	quoted(t, l, events...)
	d := newDesk(t, l)
	d.wants(l, view.NotAccepted, "")
	if err := d.Accept(t.Context(), "n", d.node.Offers().ID(), "eve"); err != nil {
		t.Fatal(err)
	}
	d.wants(l, view.Attested, "")
	d.shows(l, 2, view.Attested, "")
	if len(d.node.Quote.Accepted.EK) == 0 {
		t.Error("it is not bound")
	}
}

// mixed is what an attacker makes of two TPMs: it quotes by the one, and shows the other's endorsement key.
type mixed struct {
	*tpm.Log
	shows *tpm.Log
	opens *tpm.Log
}

func (m mixed) Endorse(q *spec.Quote) error          { return m.shows.Endorse(q) }
func (m mixed) Activate(c, s []byte) ([]byte, error) { return m.opens.Activate(c, s) }

// changed shows an endorsement key with another attribute than the TPM's.
type changed struct {
	*tpm.Log
	of func(*tpm2.TPMAObject)
}

func (c changed) Endorse(q *spec.Quote) error {
	if err := c.Log.Endorse(q); err != nil {
		return err
	}
	public, err := tpm2.Unmarshal[tpm2.TPMTPublic](q.EK)
	if err != nil {
		return err
	}
	c.of(&public.ObjectAttributes)
	q.EK = tpm2.Marshal(public)
	return nil
}

// TestAnEndorsementKeyOfNoProfile: nothing is sealed to a key that a TPM might give away, or that signs.
func TestAnEndorsementKeyOfNoProfile(t *testing.T) {
	l := machine(t, Start(t), usual)
	quoted(t, l, events...)
	d := newDesk(t, l)
	key, err := l.Key()
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]func(*tpm2.TPMAObject){"fixed": func(a *tpm2.TPMAObject) { a.FixedTPM = false },
		"restricted": func(a *tpm2.TPMAObject) { a.Restricted = false }, "decrypts": func(a *tpm2.TPMAObject) { a.SignEncrypt = true }} {
		var letters []string
		if err := d.posts(changed{l, of}, key, &letters); err == nil || !strings.Contains(err.Error(), "the endorsement key is of no known profile") || len(letters) != 1 || d.node.Quote != nil {
			t.Errorf("%s: %v after %d quotes", name, err, len(letters))
		}
	}
	d.shows(l, 2, view.NotAccepted, "")
}

// TestAKeyOfAnotherMachine: who has two machines cannot have the one quote for the other; and what was opened counts once.
func TestAKeyOfAnotherMachine(t *testing.T) {
	ours, theirs := machine(t, Start(t), usual), machine(t, Start(t), usual)
	quoted(t, ours, events...)
	quoted(t, theirs, events...)
	d := newDesk(t, ours)
	d.shows(ours, 2, view.NotAccepted, "")
	if err := d.Accept(t.Context(), "n", d.node.Offers().ID(), "eve"); err != nil {
		t.Fatal(err)
	}
	d.shows(ours, 1, view.Attested, "")
	key, err := theirs.Key()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]mixed{"the quoting machine opens": {theirs, ours, theirs}, "the shown machine opens": {theirs, ours, ours}} {
		var letters []string
		before := d.node.Quote
		if err := d.posts(m, key, &letters); err == nil || !strings.Contains(err.Error(), "open what is sealed to the TPM: ") || d.node.Quote != before || len(letters) != 1 {
			t.Errorf("%s: %v after %d quotes", name, err, len(letters))
		}
	}
	var letters []string
	if key, err = ours.Key(); err != nil {
		t.Fatal(err)
	}
	if err := d.posts(mixed{ours, theirs, ours}, key, &letters); err == nil || !strings.Contains(err.Error(), "another endorsement key than its nonce") {
		t.Errorf("another endorsement key behind the nonce: %v", err)
	}
	letters = nil
	if err := d.posts(ours, key, &letters); err != nil {
		t.Fatal(err)
	}
	if err := d.sends(ours, letters[0]); err == nil || !strings.Contains(err.Error(), "was answered") {
		t.Errorf("an opened nonce counts twice: %v", err)
	}
}

// TestATPMThatIsCertified: a machine whose TPM an authority has certified needs nobody, if its
// loader is known; others need somebody, and so does a change of what was accepted.
func TestATPMThatIsCertified(t *testing.T) {
	by, stranger := newMaker(t), newMaker(t)
	for name, row := range map[string]struct {
		index tpm2.TPMHandle
		of    tpm2.TPMTPublic // that the certificate is of
		by    maker
		word  view.Attestation
		why   string
	}{
		"P-256":          {index: 0x01c0000a, of: tpm2.ECCEKTemplate, by: by, word: view.Attested},
		"RSA":            {index: 0x01c00002, of: tpm2.RSAEKTemplate, by: by, word: view.Attested},
		"none":           {word: view.NotAccepted, why: "; its TPM shows no certificate"},
		"of a stranger":  {index: 0x01c0000a, of: tpm2.ECCEKTemplate, by: stranger, word: view.NotAccepted, why: "certificate signed by unknown authority"},
		"of another key": {index: 0x01c0000a, of: tpm2.RSAEKTemplate, by: by, word: view.NotAccepted, why: "the certificate of its TPM is of another key"},
	} {
		t.Run(name, func(t *testing.T) {
			open := Start(t)
			if row.index != 0 {
				row.by.certifies(t, open, row.of, row.index)
			}
			l := machine(t, open, usual)
			quoted(t, l, events...)
			d := newDesk(t, l)
			d.Authorities = x509.NewCertPool()
			d.Authorities.AddCert(by.cert)
			loaders := d.known.Loaders
			d.known.Loaders = nil
			d.shows(l, 2, view.NotAccepted, "")
			d.known.Loaders = loaders
			d.shows(l, 1, row.word, row.why)
			if row.word != view.Attested {
				return
			}
			if err := l.TPM.Extend(0, [32]byte{1}); err != nil {
				t.Fatal(err)
			}
			d.shows(l, 1, view.Changed, "the firmware's log is not what register 0 has")
		})
	}
}
