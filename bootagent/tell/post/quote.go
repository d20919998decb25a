// SPDX-License-Identifier: Apache-2.0

package post

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// TPM is the machine's, with its logs.
type TPM interface {
	Key() (string, error) // digest of the key that it quotes with, or spec.NoTPM
	Quote(nonce []byte) (*spec.Quote, error)
	Endorse(q *spec.Quote) error                                  // adds what the TPM was made with
	Activate(credential, secret []byte) (nonce []byte, err error) // opens what is sealed to it
}

// named is what reports say of a TPM: its key stays the same, and making it takes a second.
type named struct {
	mu    sync.Mutex
	key   string
	again time.Time // when one that refused, or was not there, is asked again
}

// askAgain is how long a TPM that gave no key is left alone: one that hangs holds each report
// back for as long as a command may take.
const askAgain = time.Hour

// nameTPM returns what reports say of the TPM.
func (p *Post) nameTPM() string {
	t := &p.tpm
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.TPM == nil || t.key != "" && t.key != spec.NoTPM || time.Now().Before(t.again) {
		return t.key
	}
	key, err := p.TPM.Key()
	if err != nil {
		p.Say("reports leave the TPM out: %v", err)
	}
	t.key, t.again = key, time.Now().Add(askAgain)
	return key
}

// quote has the TPM quote over a nonce that the service gave, and sends it there. Whatever nonce
// that is, the key signs quotes alone, and they go to the service that is reported to. That may answer
// with a sealed one, to see that the key is in the TPM that the first quote named.
func (p *Post) quote(ctx context.Context, to spec.Reporting, given string) error {
	for range 2 {
		nonce, err := p.openNonce(given)
		if err != nil {
			return err
		}
		q, err := p.TPM.Quote(nonce)
		if err != nil {
			return err
		}
		if err := p.TPM.Endorse(q); err != nil {
			p.Say("the quote is not bound to the TPM: %v", err)
		}
		q.Fleet, q.Node = p.Tracker.Bootstrap.Fleet, p.Tracker.Identity.Node
		body, err := spec.Encode(q)
		if err != nil {
			return err
		}
		var answer bytes.Buffer
		if err := p.By(ctx, Letter{URL: to.URL + spec.QuotePath, Header: map[string]string{spec.NonceHeader: q.Nonce},
			Body: body, Token: true, Answer: &answer}); err != nil || answer.Len() == 0 {
			return err
		}
		given = answer.String()
	}
	return nil
}

// openNonce reads a nonce, and has the TPM open one that is sealed to it.
func (p *Post) openNonce(given string) (nonce []byte, err error) {
	credential, secret, sealed := strings.Cut(given, " ")
	if !sealed {
		nonce, err = hex.DecodeString(given)
	} else {
		var parts [2][]byte
		for i, text := range []string{credential, secret} {
			if parts[i], err = base64.StdEncoding.DecodeString(text); err != nil {
				break
			}
		}
		if err == nil {
			if nonce, err = p.TPM.Activate(parts[0], parts[1]); err != nil {
				return nil, err
			}
		}
	}
	if err != nil || len(nonce) < spec.MinNonce || len(nonce) > spec.MaxNonce {
		return nil, fmt.Errorf("the service gives %.80q, which is not a nonce", given)
	}
	return nonce, nil
}
