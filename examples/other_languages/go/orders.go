// Publishes COUNT messages, or handles COUNT messages in order:
//
//	go mod init orders && go get github.com/rabbitmq/amqp091-go && go run orders.go publish|consume COUNT
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"
)

const queues = 4

func publish(channel *amqp.Channel, count int) {
	must(channel.Confirm(false))
	confirmations := channel.NotifyPublish(make(chan amqp.Confirmation, count))
	returned := channel.NotifyReturn(make(chan amqp.Return, count))
	for n := 0; n < count; n++ {
		message := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(strconv.Itoa(n))}
		key := fmt.Sprintf("customer-%d", n%50)
		must(channel.PublishWithContext(context.Background(), "orders", key, true, false, message))
	}
	for n := 0; n < count; n++ {
		if confirmation := <-confirmations; !confirmation.Ack { // also if the connection is lost
			log.Fatal("a message is not confirmed")
		}
	}
	if len(returned) > 0 {
		log.Fatal(len(returned), " messages are unroutable")
	}
}

func consume(connection *amqp.Connection, count int) {
	handled := make(chan bool)
	for n := 1; n <= queues; n++ {
		queue := fmt.Sprintf("orders.%d", n)
		channel := got(connection.Channel())
		must(channel.Qos(1, 0, false)) // the next message arrives after the acknowledgement of this one
		deliveries := got(channel.Consume(queue, "", false, false, false, false, nil))
		go func() {
			for message := range deliveries {
				fmt.Println(queue, message.RoutingKey, string(message.Body))
				must(message.Ack(false))
				handled <- true
			}
			handled <- false
		}()
	}
	for ; count > 0; count-- {
		if !<-handled {
			log.Fatal("the connection or a queue is lost")
		}
	}
}

func main() {
	connection := got(amqp.Dial(os.Getenv("AMQP_URL")))
	defer connection.Close()
	count := got(strconv.Atoi(os.Args[2]))
	if os.Args[1] == "publish" {
		publish(got(connection.Channel()), count)
	} else {
		consume(connection, count)
	}
}

func got[T any](value T, err error) T {
	must(err)
	return value
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
