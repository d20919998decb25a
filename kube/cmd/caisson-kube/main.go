// SPDX-License-Identifier: Apache-2.0

// Command caisson-kube is the front of caisson in a Kubernetes cluster: it reads a namespace
// as a fleet's site, says in the objects what is wrong and what publishing would change,
// shows the fleet's nodes as objects, and drains Nodes before they start over.
//
// It commands no machine: nodes obey signatures. It signs only where it is given a key, or
// a program that has one.
package main

import (
	"context"
	"crypto"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/kube/drain"
	"github.com/caisson-os/caisson/kube/service"
	"github.com/caisson-os/caisson/kube/sites"
	"github.com/caisson-os/caisson/oci/keychain"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
)

var version = "development"

// several takes each value of a flag that may be given several times.
func several(to *[]string) func(string) error {
	return func(text string) error { *to = append(*to, text); return nil }
}

// options are the flags of the command line.
type options struct {
	namespaces, keys, commands, cas []string
	dir, state, auth                string
	metrics, health, webhook        string
	plainHTTP, newFleet             bool
	noApproval, signedApproval      bool
	elect                           bool
	electIn                         string
	again                           time.Duration
	fleets, registries, prometheus  []string
	pace                            float64
	drains, conditions              bool
	drainMost                       int
	drain                           drain.Policy
}

func main() {
	var o options
	flag.Func("namespace", "look after this namespace; several may be given; all of them when absent", several(&o.namespaces))
	flag.StringVar(&o.dir, "dir", "/etc/caisson", "has a directory for each namespace: in it are keys/operator.pub, "+
		"other public keys, caisson.keys where there is a root key, and services.lock")
	flag.StringVar(&o.state, "state", "/var/lib/caisson-kube", "where it is remembered what was published")
	flag.Func("key", "sign with the private key in this file, or of command:PROGRAM; several for a threshold", several(&o.keys))
	flag.Func("signer-command", "sign with this program, for keys in hardware or a KMS", several(&o.commands))
	flag.BoolVar(&o.noApproval, "without-approval", false,
		"publish what the objects say without a PublishApproval: whoever may write objects then changes nodes")
	flag.BoolVar(&o.signedApproval, "signed-approval", false, "publish only what operators signed with 'caisson approve'")
	flag.BoolVar(&o.newFleet, "new-fleet", false, "make a first fleet in a registry that has none")
	flag.StringVar(&o.auth, "auth-file", "", "registry credentials in the form of docker's config.json, mode 0600")
	flag.Func("ca", "trust only the PEM certificate authorities in this file for the registry", several(&o.cas))
	flag.BoolVar(&o.plainHTTP, "plain-http", false, "talk HTTP to the registry; what is signed stays signed")
	flag.BoolVar(&o.elect, "leader-elect", true, "work only while no other instance in the cluster does")
	flag.StringVar(&o.electIn, "leader-elect-namespace", "", "where instances agree on who works; that of the pod when absent")
	flag.StringVar(&o.metrics, "metrics", "0", "address of metrics; 0 is none")
	flag.StringVar(&o.health, "health", ":8081", "address of /healthz and /readyz")
	flag.StringVar(&o.webhook, "webhook", "", "address at which API servers ask before they store an object, such as :9443; none when empty")
	flag.DurationVar(&o.again, "again", 5*time.Minute, "look at each namespace after this long, whatever changes")
	flag.Func("fleet", "NAMESPACE=URL: the service of the fleet in a namespace, whose nodes are shown there; "+
		"its directory has the token, and service-ca.pem where the system does not trust it", several(&o.fleets))
	flag.Func("prometheus", "NAMESPACE=URL: the Prometheus that analyses of the rollouts in a namespace ask", several(&o.prometheus))
	flag.Float64Var(&o.pace, "pace", 20, "so many FleetNodes and Nodes are written in a second at most, of all fleets together")
	flag.BoolVar(&o.conditions, "node-conditions", false,
		"give a Node of the same name as a node of the fleet the condition caisson.dev/Configured")
	flag.BoolVar(&o.drains, "drain", false, "drain Nodes that wait for it; the token is of role drain")
	flag.Func("registry", "NAMESPACE=HOST[:PORT]/PREFIX: where the fleet of a namespace is published, in "+
		"the place of what its Site says; only nodes that are published there are drained", several(&o.registries))
	flag.IntVar(&o.drainMost, "drain-most", 1, "Nodes of a group that are drained, or not back yet, at a time, whatever "+
		"slots the fleet's service gives out")
	flag.DurationVar(&o.drain.Timeout, "drain-timeout", 15*time.Minute, "give a Node back that is not drained after this long")
	flag.IntVar(&o.drain.Grace, "drain-grace", -1, "seconds that each pod gets; what the pod says below 0")
	flag.BoolVar(&o.drain.DeleteEmptyDir, "drain-delete-emptydir", false, "evict pods with emptyDir volumes, too: what is in these is gone")
	flag.BoolVar(&o.drain.Force, "drain-force", false, "delete pods, too, that no controller makes again")
	installs := flag.Bool("install-webhook", false, "make the webhook's certificate, have API servers know its "+
		"authority, and end: by an account of its own, which may write the webhook's configuration")
	show := flag.Bool("version", false, "print the version")
	flag.Parse()
	if *show {
		fmt.Println("caisson-kube " + version)
		return
	}
	log.SetLogger(klog.Background())
	config, err := ctrl.GetConfig()
	if flag.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	switch ctx := ctrl.SetupSignalHandler(); {
	case err != nil:
	case *installs:
		err = o.install(ctx, config)
	default:
		err = run(ctx, config, o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "caisson-kube: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, config *rest.Config, o options) error {
	signers, err := o.signers()
	if err != nil {
		return err
	}
	approval, err := o.approval()
	if err != nil {
		return err
	}
	if o.drains && o.drain.Timeout <= 0 { // to kubectl that is not a limit
		return fmt.Errorf("--drain-timeout %s: a drain has a limit: write a time above 0, such as 15m", o.drain.Timeout)
	}
	if o.drains && o.drainMost < 1 {
		return fmt.Errorf("--drain-most %d: write a number of Nodes above 0", o.drainMost)
	}
	registries, err := named(o.registries, "registry", "HOST[:PORT]/PREFIX")
	if err != nil {
		return err
	}
	config.UserAgent = "caisson-kube/" + version
	caching := cache.Options{DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: whatIsRead}}}
	if len(o.namespaces) > 0 {
		caching.DefaultNamespaces = map[string]cache.Config{}
		for _, name := range o.namespaces {
			caching.DefaultNamespaces[name] = cache.Config{}
		}
	}
	hook, err := o.hook()
	if err != nil {
		return err
	}
	one := true // there is one controller: a process that runs twice in a test is not a mistake
	mgr, err := ctrl.NewManager(config, ctrl.Options{Cache: caching,
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}}, LeaderElection: o.elect,
		LeaderElectionID: "caisson-kube", LeaderElectionNamespace: o.electIn, LeaderElectionReleaseOnCancel: true,
		Controller: ctrlconfig.Controller{SkipNameValidation: &one},
		Metrics:    server.Options{BindAddress: o.metrics}, HealthProbeBindAddress: o.health})
	if err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return err
	}
	r := &sites.Reconciler{Client: mgr.GetClient(), Events: mgr.GetEventRecorder("caisson-kube"), Dir: o.dir,
		State: o.state, Open: o.open, Registries: registries,
		Signing: sites.Signing{Signers: signers, Approval: approval, NewFleet: o.newFleet}, Again: o.again, Now: time.Now,
		Secret: secretsOf(mgr.GetAPIReader())}
	seen, err := counting()
	if err != nil {
		return err
	}
	r.Seen = seen
	if r.Prometheus, err = clientsOf(o.prometheus); err != nil {
		return err
	}
	services, err := o.follow(mgr, r, seen)
	if err != nil {
		return err
	}
	if len(services) > 0 {
		hear(r, services)
	}
	if err := r.Watch(mgr); err != nil {
		return err
	}
	if err := hook.add(ctx, mgr, r, &o, seen); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// hear has a reconciler ask the fleets' services, by namespace, for reports and slots.
func hear(r *sites.Reconciler, services map[string]*service.Client) {
	of := func(namespace string) (*service.Client, error) {
		if s := services[namespace]; s != nil {
			return s, nil
		}
		return nil, fmt.Errorf("no --fleet names the service of the namespace %s", namespace)
	}
	r.Reports = func(ctx context.Context, namespace string, asked report.Asked) (map[string]report.Standing, error) {
		s, err := of(namespace)
		if err != nil {
			return nil, err
		}
		by, err := report.OpenReporters(filepath.Join(r.State, namespace+".reporters"), false)
		if err != nil {
			return nil, err
		}
		return s.Reports(ctx, asked, by)
	}
	r.Slots = func(ctx context.Context, namespace string) (map[string]string, error) {
		s, err := of(namespace)
		if err != nil {
			return nil, err
		}
		held, err := s.Slots(ctx)
		busy := map[string]string{}
		for _, one := range held {
			busy[one.Node] = "slot of " + one.Group
		}
		return busy, err
	}
}

// named reads what a flag says of each namespace.
func named(list []string, flag, as string) (map[string]string, error) {
	all := map[string]string{}
	for _, one := range list {
		namespace, what, ok := strings.Cut(one, "=")
		if !ok {
			return nil, fmt.Errorf("--%s %s: write NAMESPACE=%s", flag, one, as)
		}
		all[namespace] = what
	}
	return all, nil
}

// clientsOf opens the Prometheus of each namespace. The URL may hold a password, which no error shows.
func clientsOf(list []string) (map[string]*analysis.Client, error) {
	addresses, err := named(list, "prometheus", "URL")
	if err != nil {
		return nil, errors.New("--prometheus: write NAMESPACE=URL")
	}
	clients := map[string]*analysis.Client{}
	for namespace, address := range addresses {
		asked, err := analysis.Open(address)
		if err != nil {
			return nil, fmt.Errorf("--prometheus %s: %w", namespace, err)
		}
		clients[namespace] = asked
	}
	return clients, nil
}

// secretsOf reads Secrets as they are: none is kept in memory.
func secretsOf(api client.Reader) func(ctx context.Context, namespace, name, key string) ([]byte, error) {
	return func(ctx context.Context, namespace, name, key string) ([]byte, error) {
		var s corev1.Secret
		if err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s); err != nil {
			return nil, fmt.Errorf("read Secret %s: %w", name, err)
		}
		value, ok := s.Data[key]
		if !ok {
			return nil, fmt.Errorf("the Secret %s has no key %q", name, key)
		}
		return value, nil
	}
}

// counting are the metrics of this process, which it has once.
var counting = sync.OnceValues(func() (*metrics, error) { return newMetrics(ctrlmetrics.Registry) })

// whatIsRead keeps of a Node in memory what a site, a FleetNode or a drain is compared with:
// images and volumes of thousands of them are not.
func whatIsRead(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		kept := &corev1.Node{}
		kept.Name, kept.UID, kept.ResourceVersion, kept.Labels = n.Name, n.UID, n.ResourceVersion, n.Labels
		if mark, drained := n.Annotations[drain.Annotation]; drained {
			kept.Annotations = map[string]string{drain.Annotation: mark}
		}
		kept.Status.Conditions, kept.Status.NodeInfo.SystemUUID = n.Status.Conditions, n.Status.NodeInfo.SystemUUID
		return kept, nil
	}
	return o, nil
}

// service is the client of a fleet's service.
func (o *options) service(namespace, address string) (*service.Client, error) {
	token, ca := filepath.Join(o.dir, namespace, "token"), filepath.Join(o.dir, namespace, "service-ca.pem")
	if _, err := os.Stat(token); errors.Is(err, fs.ErrNotExist) {
		token = "" // a service on a loopback takes none
	}
	cas, err := os.ReadFile(ca)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return service.New(address, token, cas)
}

// approval is the least that plans need.
func (o *options) approval() (sites.Approval, error) {
	switch {
	case o.noApproval && o.signedApproval:
		return 0, errors.New("give either --without-approval or --signed-approval")
	case o.noApproval:
		return sites.Unasked, nil
	case o.signedApproval:
		return sites.Signed, nil
	}
	return sites.Required, nil
}

// signers opens the keys; none is none.
func (o *options) signers() ([]crypto.Signer, error) {
	sources := slices.Clone(o.keys)
	for _, command := range o.commands {
		sources = append(sources, keys.Command(command))
	}
	return keys.Signers(sources, &keys.Passphrase{})
}

// open opens the registry that a Site names.
func (o *options) open(ref string) (*registry.Registry, error) {
	logins := &keychain.Chain{Say: func(format string, args ...any) { klog.Infof(format, args...) }}
	p := pull.Options{PlainHTTP: o.plainHTTP, AuthFile: o.auth, Logins: logins.Find, Mute: true, UserAgent: "caisson-kube/" + version}
	for _, name := range o.cas {
		pem, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("certificate authority: %w", err)
		}
		p.CAs = append(p.CAs, string(pem))
	}
	return registry.Open(ref, p)
}

// follow adds what is done for each fleet whose service is known, and returns these by their
// namespaces.
func (o *options) follow(mgr ctrl.Manager, r *sites.Reconciler, seen *metrics) (map[string]*service.Client, error) {
	services, sources := map[string]*service.Client{}, map[string]service.Source{}
	fleets, err := named(o.fleets, "fleet", "URL")
	if err != nil {
		return nil, err
	}
	for namespace, address := range fleets {
		s, err := o.service(namespace, address)
		if err != nil {
			return nil, err
		}
		services[namespace], sources[namespace] = s, s
	}
	events := mgr.GetEventRecorder("caisson-kube")
	for _, m := range o.mirrors(service.Mirror{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events,
		Wrote: seen.Wrote, Conditions: o.conditions}, sources) {
		if err := mgr.Add(m); err != nil {
			return nil, err
		}
	}
	if !o.drains {
		return services, nil
	}
	set, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	for _, namespace := range slices.Sorted(maps.Keys(services)) {
		index := func(ctx context.Context, nodes []string) (map[string][]string, error) {
			return r.Groups(ctx, namespace, nodes)
		}
		d := &drain.Drainer{Client: set, Nodes: mgr.GetClient(), Events: events, Slots: services[namespace], Index: index,
			Most: o.drainMost, Namespace: namespace, Alone: len(services) == 1, Policy: o.drain, Every: 10 * time.Second,
			Again: 10 * time.Minute, Patience: 15 * time.Minute, Seen: seen.Drained}
		if err := mgr.Add(d); err != nil {
			return nil, err
		}
	}
	return services, nil
}

// mirrors are those of all fleets, made of what they have in common. What an API server has to
// take from this process is bounded for all of them together.
func (o *options) mirrors(common service.Mirror, sources map[string]service.Source) (out []*service.Mirror) {
	common.Pace = rate.NewLimiter(rate.Limit(o.pace), 1)
	common.Settle, common.Every, common.Check, common.Now = 5*time.Second, time.Minute, 10*time.Minute, time.Now
	for _, namespace := range slices.Sorted(maps.Keys(sources)) {
		m := common
		m.Namespace, m.Source = namespace, sources[namespace]
		out = append(out, &m)
	}
	return out
}
