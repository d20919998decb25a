// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/kube/object"
	"github.com/caisson-os/caisson/kube/sites"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// hook is the admission webhook; nil where there is none.
type hook struct {
	address string
	keep    *object.Keeper
	handler http.Handler
	listens atomic.Bool
}

// hook reads the webhook's address.
func (o *options) hook() (*hook, error) {
	if o.webhook == "" {
		return nil, nil
	}
	_, port, err := net.SplitHostPort(o.webhook)
	if err != nil {
		return nil, fmt.Errorf("--webhook %s: %w", o.webhook, err)
	}
	if _, err := strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("--webhook %s: write ADDRESS:PORT", o.webhook)
	}
	return &hook{address: o.webhook, keep: &object.Keeper{Every: time.Minute, Now: time.Now}}, nil
}

// Start answers until ctx ends.
func (h *hook) Start(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", h.address)
	if err != nil {
		return err
	}
	h.listens.Store(true)
	// a connection asks one thing at a time
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: h.keep.GetCertificate, NextProtos: []string{"http/1.1"}}
	return httpserver.Serve(ctx, l, h.handler, httpserver.Options{TLS: config, Conns: object.MaxConns,
		PerClient: object.MaxConns / httpserver.Share})
}

// NeedLeaderElection says that each instance answers.
func (*hook) NeedLeaderElection() bool { return false }

// ready reports whether it answers, as [healthz.Checker] does.
func (h *hook) ready(*http.Request) error {
	if !h.listens.Load() {
		return errors.New("the webhook does not listen yet")
	}
	return nil
}

// add has each instance answer, whichever works.
func (h *hook) add(ctx context.Context, mgr ctrl.Manager, r *sites.Reconciler, o *options, seen *metrics) error {
	if h == nil {
		return nil
	}
	namespace, err := o.own()
	if err != nil {
		return err
	}
	for _, k := range cluster.Kinds() {
		if !k.Doc {
			continue
		}
		if _, err := mgr.GetCache().GetInformer(ctx, object.Of(k.Kind, "", "")); err != nil { // in memory before the first question
			return err
		}
	}
	h.keep.Reader, h.keep.Namespace = mgr.GetAPIReader(), namespace
	mux := http.NewServeMux()
	mux.Handle(object.AskedAt, object.NewHandler(r, o.namespaces, seen.Answered))
	h.handler = mux
	return errors.Join(mgr.Add(h.keep), mgr.Add(h), mgr.AddReadyzCheck("webhook", h.ready))
}

// install makes the webhook's certificate, and has API servers know its authority.
func (o *options) install(ctx context.Context, config *rest.Config) error {
	namespace, err := o.own()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	return (&object.Keeper{Client: c, Reader: c, Namespace: namespace, Now: time.Now}).Install(ctx)
}

// own is the namespace in which caisson-kube keeps what instances share.
func (o *options) own() (string, error) {
	if o.electIn != "" {
		return o.electIn, nil
	}
	text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return "", fmt.Errorf("which namespace has the webhook's certificate is said by --leader-elect-namespace outside of a pod: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
