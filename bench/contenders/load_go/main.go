// This load generator sends prepared orders through Go's own HTTP client, as fast as the API server takes them.
// The orders file and the report are described in prepared_requests.py, beside this folder.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Asked once over each connection before the start, so that no handshake is measured.
const hello = "/version"

type header struct {
	Server   string `json:"server"`
	CA       string `json:"ca"`
	Token    string `json:"token"`
	InFlight int    `json:"in_flight"`
	Welcome  int    `json:"welcome"`
}

type request struct {
	Path string `json:"path"`
	Body string `json:"body"`
}

type order struct {
	Bind  request  `json:"bind"`
	Event *request `json:"event"`
}

// A pod's requests, encoded as far as net/http lets them be.
type pod struct {
	bind  *http.Request
	event *http.Request
}

type report struct {
	Sent       int            `json:"sent"`
	Seconds    float64        `json:"seconds"`
	ToLastBind float64        `json:"to_last_bind"`
	CPU        float64        `json:"cpu"`
	Statuses   map[string]int `json:"statuses"`
	InFlight   int            `json:"in_flight"`
}

// What was answered since it began.
type count struct {
	mutex  sync.Mutex
	began  time.Time
	report report
}

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("cannot begin without an orders file (example: load_go orders.jsonl)"))
	}
	head, orders, err := read(os.Args[1])
	if err != nil {
		fail(fmt.Errorf("cannot read %s: %w", os.Args[1], err))
	}
	transport, err := connect(head)
	if err != nil {
		fail(err)
	}
	pods := make(chan pod, len(orders))
	for _, each := range orders {
		one, err := prepare(head, each)
		if err != nil {
			fail(fmt.Errorf("cannot prepare %s: %w", each.Bind.Path, err))
		}
		pods <- one
	}
	close(pods)
	fmt.Println("ready")
	if line, err := bufio.NewReader(os.Stdin).ReadString('\n'); line != "go\n" {
		fail(fmt.Errorf("cannot begin on %q (%v): the load generator waits for one line (example: go)", line, err))
	}
	blasted := blast(transport, pods, head.InFlight)
	if err := json.NewEncoder(os.Stdout).Encode(blasted); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func read(path string) (header, []order, error) {
	file, err := os.Open(path)
	if err != nil {
		return header{}, nil, err
	}
	defer file.Close()
	lines := json.NewDecoder(bufio.NewReader(file))
	var head header
	if err := lines.Decode(&head); err != nil {
		return head, nil, err
	}
	if head.InFlight < 1 {
		return head, nil, fmt.Errorf("in_flight is %d but must be at least 1 (example: 32)", head.InFlight)
	}
	var orders []order
	for {
		var next order
		err := lines.Decode(&next)
		if errors.Is(err, io.EOF) {
			return head, orders, nil
		}
		if err != nil {
			return head, nil, err
		}
		orders = append(orders, next)
	}
}

func prepare(head header, given order) (pod, error) {
	bind, err := encode(head, http.MethodPost, given.Bind.Path, given.Bind.Body)
	if err != nil || given.Event == nil {
		return pod{bind: bind}, err
	}
	event, err := encode(head, http.MethodPost, given.Event.Path, given.Event.Body)
	return pod{bind, event}, err
}

func encode(head header, method, path, body string) (*http.Request, error) {
	made, err := http.NewRequest(method, head.Server+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	made.Header = http.Header{
		"Accept":        {"application/json"},
		"Authorization": {"Bearer " + head.Token},
		"Content-Type":  {"application/json"},
		"User-Agent":    {"load-generator"},
	}
	return made, nil
}

// Connect opens all connections; HTTP/2 is off, because one connection would serve all requests.
func connect(head header) (*http.Transport, error) {
	text, err := os.ReadFile(head.CA)
	if err != nil {
		return nil, fmt.Errorf("cannot read the CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("cannot read a certificate from %s: it must be PEM", head.CA)
	}
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxConnsPerHost:     head.InFlight,
		MaxIdleConnsPerHost: head.InFlight,
		DisableCompression:  true,
	}
	// Only an answer that was read frees its connection: none is read before all are there.
	var greeted, ended sync.WaitGroup
	greeted.Add(head.InFlight)
	errs := make([]error, head.InFlight)
	for number := range head.InFlight {
		ended.Go(func() { errs[number] = greet(transport, head, &greeted) })
	}
	ended.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return transport, nil
}

func greet(transport *http.Transport, head header, all *sync.WaitGroup) error {
	asked, err := encode(head, http.MethodGet, hello, "")
	if err != nil {
		all.Done()
		return err
	}
	answer, err := transport.RoundTrip(asked)
	all.Done()
	if err != nil {
		return broken(err)
	}
	all.Wait()
	if err := finish(answer); err != nil {
		return broken(err)
	}
	if answer.StatusCode != head.Welcome {
		return fmt.Errorf("cannot begin: %s was answered with %d and must be with %d", hello, answer.StatusCode, head.Welcome)
	}
	return nil
}

func send(transport *http.Transport, next *http.Request) (int, error) {
	answer, err := transport.RoundTrip(next)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, finish(answer)
}

// Finish reads an answer to its end; only then is the connection free for the next request.
func finish(answer *http.Response) error {
	defer answer.Body.Close()
	_, err := io.Copy(io.Discard, answer.Body)
	return err
}

func blast(transport *http.Transport, pods <-chan pod, inFlight int) report {
	counted := &count{report: report{Statuses: map[string]int{}, InFlight: inFlight}}
	cpu := used()
	counted.began = time.Now()
	var workers sync.WaitGroup
	for range inFlight {
		workers.Go(func() { work(transport, pods, counted) })
	}
	workers.Wait()
	counted.report.CPU = (used() - cpu).Seconds()
	return counted.report
}

// Broken says why the load generator does not go on: it does not know whether the order was carried out.
func broken(err error) error {
	return fmt.Errorf("cannot measure: a connection broke (%w), and each must last to the end", err)
}

func work(transport *http.Transport, pods <-chan pod, counted *count) {
	for next := range pods {
		status, err := send(transport, next.bind)
		if err != nil {
			fail(broken(err))
		}
		counted.add(status, true)
		if next.event == nil || status < 200 || status > 299 {
			continue
		}
		if status, err = send(transport, next.event); err != nil {
			fail(broken(err))
		}
		counted.add(status, false)
	}
}

func (counted *count) add(status int, bind bool) {
	counted.mutex.Lock()
	defer counted.mutex.Unlock()
	counted.report.Sent++
	counted.report.Statuses[strconv.Itoa(status)]++
	counted.report.Seconds = time.Since(counted.began).Seconds()
	if bind {
		counted.report.ToLastBind = counted.report.Seconds
	}
}

func used() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(fmt.Errorf("cannot read the CPU time used: %w", err))
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
