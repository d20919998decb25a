// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/caisson-os/caisson/kube/admit"
	"github.com/caisson-os/caisson/kube/metrics"
	"github.com/caisson-os/caisson/kube/sites"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// hook is the admission webhook; nil where there is none.
type hook struct {
	host string
	port int
	keep *admit.Keeper
}

// hook reads the webhook's address.
func (o *options) hook() (*hook, error) {
	if o.webhook == "" {
		return nil, nil
	}
	host, text, err := net.SplitHostPort(o.webhook)
	if err != nil {
		return nil, fmt.Errorf("--webhook %s: %w", o.webhook, err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("--webhook %s: write ADDRESS:PORT", o.webhook)
	}
	return &hook{host, port, &admit.Keeper{Every: time.Minute, Now: time.Now}}, nil
}

// server is where API servers ask.
func (h *hook) server() webhook.Server {
	if h == nil {
		return nil
	}
	return webhook.NewServer(webhook.Options{Host: h.host, Port: h.port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.GetCertificate = h.keep.GetCertificate
	}}})
}

// add has each instance answer, whichever works.
func (h *hook) add(ctx context.Context, mgr ctrl.Manager, r *sites.Reconciler, o *options, seen *metrics.Metrics) error {
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
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(sites.GVK(k.Kind))
		if _, err := mgr.GetCache().GetInformer(ctx, u); err != nil { // in memory before the first question
			return err
		}
	}
	h.keep.Client, h.keep.Reader, h.keep.Namespace = mgr.GetClient(), mgr.GetAPIReader(), namespace
	mgr.GetWebhookServer().Register(admit.Path, admit.New(r, o.namespaces, seen.Answered))
	return errors.Join(mgr.Add(h.keep), mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()))
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
