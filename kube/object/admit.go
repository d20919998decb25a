// SPDX-License-Identifier: Apache-2.0

package object

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// AskedAt is where an API server asks.
const AskedAt = "/validate"

// Judge says of objects what a look at their namespace would.
type Judge interface {
	Judge(ctx context.Context, u *unstructured.Unstructured) (Judgement, error)
}

// Handler answers an API server that asks, before it stores an object, whether the object is valid.
//
// It is a courtesy to users of kubectl apply, and not a guard: what is stored is judged, whether this was
// asked or not. So it refuses only what no other object could mend, never what is being deleted, and never
// a change that leaves the content alone.
type Handler struct {
	Judge      Judge
	Namespaces []string // that are looked after; all of them when empty
	Seen       func(verdict string, took time.Duration)

	reads *httpserver.Turns // of questions that are read and answered, by who asks
	turns chan struct{}     // of questions that are looked at
}

// Bounds of what is asked, by whichever pod.
const (
	MaxQuestion = 3 << 20 // bytes: two objects as large as an API server stores
	MaxConns    = 128     // connections, of which an eighth are an address's
	MaxAsked    = 8       // questions at a time, of which one is an address's
	atOnce      = 2       // of these looked at: each reads a whole namespace
)

// NewHandler returns a handler for namespaces, all of them when there are none.
func NewHandler(judge Judge, namespaces []string, seen func(verdict string, took time.Duration)) *Handler {
	return &Handler{judge, namespaces, seen, httpserver.NewTurns(MaxAsked, MaxAsked/httpserver.Share), make(chan struct{}, atOnce)}
}

// Words of [Handler.Seen].
const (
	Allowed = "allowed"
	Refused = "refused"
	Failed  = "failed"
)

// ServeHTTP answers over HTTP. A question that cannot be answered gets an error and no answer:
// then the API server does what the failurePolicy says, where it would take an answer for a
// refusal.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	host, _, _ := net.SplitHostPort(req.RemoteAddr) // of a test there is none
	give := h.reads.Take(req.Context(), httpserver.Client(host))
	if give == nil {
		return // who asked is gone
	}
	defer give()
	text, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxQuestion))
	var review admissionv1.AdmissionReview
	if err != nil || tooMany(text) || json.Unmarshal(text, &review) != nil || review.Request == nil {
		http.Error(w, "this is not a question of an API server", http.StatusBadRequest)
		return
	}
	q := admission.Request{AdmissionRequest: *review.Request}
	resp := h.Handle(req.Context(), q)
	if failed(resp) {
		http.Error(w, resp.Result.Message, int(resp.Result.Code))
		return
	}
	if err := resp.Complete(q); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	review.Request, review.Response = nil, &resp.AdmissionResponse
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // who asked is gone
}

// tooMany reports whether a text has more of JSON than two objects that would be taken apart: it
// costs as much as it has values, not bytes.
func tooMany(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	for range 4 * cluster.MaxValues { // names, values and what is around them, of two
		if _, err := d.Token(); err != nil {
			return false // it ends, or is no JSON
		}
	}
	return true
}

// failed reports whether a response is not an answer.
func failed(resp admission.Response) bool {
	return !resp.Allowed && (resp.Result == nil || resp.Result.Code != http.StatusForbidden)
}

// Handle answers one question.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	began := time.Now()
	resp := h.answer(ctx, req)
	verdict := Allowed
	switch {
	case failed(resp):
		verdict = Failed
	case !resp.Allowed:
		verdict = Refused
	}
	if h.Seen != nil {
		h.Seen(verdict, time.Since(began))
	}
	return resp
}

func (h *Handler) answer(ctx context.Context, req admission.Request) admission.Response {
	if len(h.Namespaces) > 0 && !slices.Contains(h.Namespaces, req.Namespace) ||
		req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(req.Object.Raw); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the object: %w", err))
	}
	if u.GetDeletionTimestamp() != nil {
		return admission.Allowed("")
	}
	u.SetNamespace(req.Namespace) // where it goes, whatever it says
	select {
	case h.turns <- struct{}{}:
		defer func() { <-h.turns }()
	case <-ctx.Done():
		return admission.Errored(http.StatusServiceUnavailable, fmt.Errorf("wait for a turn: %w", ctx.Err()))
	}
	j, err := h.Judge.Judge(ctx, u)
	switch {
	case err != nil: // the operator chose what follows, by failurePolicy
		return admission.Errored(http.StatusInternalServerError, err)
	case len(j.Wrong) > 0 && !sameContent(req.OldObject.Raw, req.Object.Raw):
		return admission.Denied(strings.Join(j.Wrong, "\n")).WithWarnings(j.Warnings...)
	}
	return admission.Allowed("").WithWarnings(append(j.Wrong, j.Warnings...)...)
}

// sameContent reports whether an object says what it said before, but for metadata and
// status.
func sameContent(before, after []byte) bool {
	var old, now map[string]any
	if len(before) == 0 || json.Unmarshal(before, &old) != nil || json.Unmarshal(after, &now) != nil {
		return false
	}
	for _, name := range []string{"metadata", "status", "apiVersion"} {
		delete(old, name)
		delete(now, name)
	}
	return reflect.DeepEqual(old, now)
}

// life is how long a certificate is good for. Another takes its place where it is installed again
// and a third is left.
const life = 10 * 365 * 24 * time.Hour

// pair is a certificate, its key, and the authorities that the API server is to know: its
// own, and those of certificates that other instances may still show.
type pair struct{ cert, key, authorities []byte }

// newPair makes a certificate by an authority of its own, whose key nobody keeps.
func newPair(name string, now time.Time, old []byte) (pair, error) {
	authority := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()),
		Subject: pkix.Name{CommonName: "caisson-kube webhook authority"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano() + 1), Subject: pkix.Name{CommonName: name},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(name); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	} else {
		leaf.DNSNames = []string{name}
	}
	signer, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // the reader never fails, and the curve is known
	ca, err := x509.CreateCertificate(rand.Reader, authority, authority, signer.Public(), signer)
	if err != nil {
		return pair{}, err
	}
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // as above
	cert, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), signer)
	if err != nil {
		return pair{}, err
	}
	der, _ := x509.MarshalPKCS8PrivateKey(key) // a key of P-256 has that form
	block := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	first, _ := pem.Decode(old) // of the certificate that this one follows
	authorities := block("CERTIFICATE", ca)
	if first != nil {
		authorities = append(authorities, pem.EncodeToMemory(first)...)
	}
	return pair{block("CERTIFICATE", cert), block("PRIVATE KEY", der), authorities}, nil
}

// open returns the certificate if it is good for a name, and for a while.
func (p pair) open(name string, now time.Time) (*tls.Certificate, error) {
	c, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(p.authorities) {
		return nil, errors.New("it has no authority")
	}
	if _, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: pool, CurrentTime: now}); err != nil {
		return nil, err
	}
	if now.After(c.Leaf.NotAfter.Add(-life / 3)) {
		return nil, fmt.Errorf("it ends at %s", c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return &c, nil
}

// GetCertificate is the server's.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.now.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Install makes a certificate where the Secret has none, or one that ends, and has API servers know
// its authority.
func (k *Keeper) Install(ctx context.Context) error {
	hook, name, err := k.configuration(ctx)
	if err != nil {
		return err
	}
	p, version, err := k.secret(ctx)
	if err != nil {
		return err
	}
	if _, err := p.open(name, k.Now()); err != nil {
		if p, err = newPair(name, k.Now(), p.authorities); err != nil {
			return fmt.Errorf("make a certificate: %w", err)
		}
		if err := k.store(ctx, p, version); err != nil {
			return err
		}
	}
	for i := range hook.Webhooks {
		if !bytes.Equal(hook.Webhooks[i].ClientConfig.CABundle, p.authorities) {
			return k.announce(ctx, hook, p.authorities)
		}
	}
	return nil
}

// look takes the certificate that the Secret has.
func (k *Keeper) look(ctx context.Context) error {
	p, _, err := k.secret(ctx)
	if err != nil {
		return err
	}
	c, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return fmt.Errorf("the webhook's certificate, which 'caisson-kube --install-webhook' makes: %w", err)
	}
	k.now.Store(&c)
	return nil
}

// Webhook is the name of the webhook's objects: its configuration, and the Secret with its
// certificate.
const Webhook = "caisson-kube-webhook"

// Keeper shows the webhook's certificate: one for all instances, in a Secret that is there. With
// other rights it installs it, and its authority in the webhook's configuration.
type Keeper struct {
	Client    client.Client // writes, where it installs
	Reader    client.Reader // reads what is there, not what is in memory
	Namespace string        // of the Secret
	Every     time.Duration
	Now       func() time.Time

	now atomic.Pointer[tls.Certificate]
}

// NeedLeaderElection says that each instance has the certificate.
func (*Keeper) NeedLeaderElection() bool { return false }

// soon is when it is tried again after it failed: it is not installed yet.
const soon = 5 * time.Second

// Start keeps it until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		again := k.Every
		if err := k.look(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "read the webhook's certificate")
			again = soon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// configuration returns that of the webhook, and the name by which API servers call it.
func (k *Keeper) configuration(ctx context.Context) (*registration.ValidatingWebhookConfiguration, string, error) {
	c := &registration.ValidatingWebhookConfiguration{}
	if err := k.Reader.Get(ctx, client.ObjectKey{Name: Webhook}, c); err != nil {
		return nil, "", fmt.Errorf("read the webhook's configuration: %w", err)
	}
	for _, w := range c.Webhooks {
		if s := w.ClientConfig.Service; s != nil {
			return c, s.Name + "." + s.Namespace + ".svc", nil
		}
		if w.ClientConfig.URL != nil {
			u, err := url.Parse(*w.ClientConfig.URL)
			if err != nil {
				return nil, "", fmt.Errorf("read the webhook's configuration: %w", err)
			}
			return c, u.Hostname(), nil
		}
	}
	return nil, "", fmt.Errorf("the webhook's configuration %s says no address", Webhook)
}

// secret returns what is kept, and its version.
func (k *Keeper) secret(ctx context.Context) (pair, string, error) {
	s := &corev1.Secret{}
	if err := k.Reader.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: Webhook}, s); err != nil {
		return pair{}, "", fmt.Errorf("read the webhook's certificate: %w", err)
	}
	return pair{s.Data["tls.crt"], s.Data["tls.key"], s.Data["ca.crt"]}, s.ResourceVersion, nil
}

// store keeps a certificate where nobody has stored another since.
func (k *Keeper) store(ctx context.Context, p pair, version string) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: Webhook, ResourceVersion: version}}
	base := s.DeepCopy()
	s.Data = map[string][]byte{"tls.crt": p.cert, "tls.key": p.key, "ca.crt": p.authorities}
	if err := k.Client.Patch(ctx, s, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("store the webhook's certificate: %w", err)
	}
	return nil
}

// announce tells API servers whose certificates to trust.
func (k *Keeper) announce(ctx context.Context, c *registration.ValidatingWebhookConfiguration, authorities []byte) error {
	base := c.DeepCopy()
	for i := range c.Webhooks {
		c.Webhooks[i].ClientConfig.CABundle = authorities
	}
	if err := k.Client.Patch(ctx, c, client.StrategicMergeFrom(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write the webhook's authority: %w", err)
	}
	return nil
}
